#include "server/json_writer.h"

#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace thalweg::server {
JsonWriter& JsonWriter::string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out_.push_back('"');
  std::size_t clean_from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
    out_.append(text.substr(clean_from, i - clean_from));
    clean_from = i + 1;
    out_.push_back('\\');
    switch (c) {
      case '"':
      case '\\':
        out_.push_back(static_cast<char>(c));
        break;
      case '\n':
        out_.push_back('n');
        break;
      case '\r':
        out_.push_back('r');
        break;
      case '\t':
        out_.push_back('t');
        break;
      default:
        out_.append("u00");
        out_.push_back(kHex[c >> 4]);
        out_.push_back(kHex[c & 15]);
    }
  }
  out_.append(text.substr(clean_from));
  out_.push_back('"');
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out_.append(digits, end);
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  if (!std::isfinite(value)) return raw("null");
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out_.append(digits, end);
  return *this;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  text::append_valid_utf8(bytes, text);
  return text;
}

std::int64_t count_characters(std::string_view bytes) {
  std::int64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace thalweg::server
