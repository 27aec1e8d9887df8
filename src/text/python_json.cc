#include "text/python_json.h"

#include <boost/json.hpp>
#include <charconv>
#include <cmath>

namespace thalweg::text {
namespace {
namespace json = boost::json;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

template <typename T>
void append_integer(T value, std::string& out) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

/// Python's repr: the shortest digits that read back, with an exponent from 1e16 on and below 1e-4.
void append_double(double value, std::string& out) {
  char text[32];
  const bool is_plain = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e16);
  const auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
  const std::string_view digits(text, std::to_chars(text, text + sizeof(text), value, format).ptr);
  out.append(digits);
  if (is_plain && digits.find('.') == std::string_view::npos) out.append(".0");
}

}  // namespace

void append_json_letters(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr std::string_view kShort = "\b\f\n\r\t\"\\";
  constexpr std::string_view kShortNames = "bfnrt\"\\";
  for (const char c : text) {
    if (const std::size_t at = kShort.find(c); at != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kShortNames[at]);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append("\\u00");
      out.push_back(kHex[c >> 4]);
      out.push_back(kHex[c & 15]);
    } else {
      out.push_back(c);
    }
  }
}

void append_json_string(std::string_view text, std::string& out) {
  out.push_back('"');
  append_json_letters(text, out);
  out.push_back('"');
}

void append_python_json(const json::value& value, std::string& out) {
  switch (value.kind()) {
    case json::kind::null:
      out.append("null");
      break;
    case json::kind::bool_:
      out.append(value.get_bool() ? "true" : "false");
      break;
    case json::kind::int64:
      append_integer(value.get_int64(), out);
      break;
    case json::kind::uint64:
      append_integer(value.get_uint64(), out);
      break;
    case json::kind::double_:
      append_double(value.get_double(), out);
      break;
    case json::kind::string:
      append_json_string(view(value.get_string()), out);
      break;
    case json::kind::array: {
      const char* separator = "[";
      for (const json::value& element : value.get_array()) {
        out.append(separator);
        append_python_json(element, out);
        separator = ", ";
      }
      out.append(value.get_array().empty() ? "[]" : "]");
      break;
    }
    case json::kind::object: {
      const char* separator = "{";
      for (const auto& [key, element] : value.get_object()) {
        out.append(separator);
        append_json_string({key.data(), key.size()}, out);
        out.append(": ");
        append_python_json(element, out);
        separator = ", ";
      }
      out.append(value.get_object().empty() ? "{}" : "}");
      break;
    }
  }
}

}  // namespace thalweg::text
