#include "server/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "server/field_rules.h"

namespace thalweg::server {
namespace json = boost::json;

ApiResult<json::object> parse_json_object(std::string_view body, std::int32_t max_depth) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return refuse("the body is empty, a JSON object is needed");

  json::parse_options options;
  options.max_depth = static_cast<std::size_t>(max_depth);
  json::parser parser(json::storage_ptr(), options);
  json::error_code error;
  const std::size_t num_read = parser.write_some(body.data(), body.size(), error);
  if (error == json::error::too_deep) {
    return refuse(fmt::format("the body nests deeper than {} levels, which is the limit", max_depth));
  }
  if (!error && num_read < body.size() && body.find_first_not_of(" \t\r\n", num_read) != std::string_view::npos) {
    return refuse(fmt::format("the body has more text after its JSON value, from byte {}", num_read));
  }
  if (error) {
    return refuse(fmt::format("the body is not valid JSON: {} near byte {}", error.message(), num_read));
  }
  json::value value = parser.release();
  if (!value.is_object()) {
    return refuse(fmt::format("the body is {}, a JSON object is needed", describe_value(value)));
  }
  return std::move(value.get_object());
}

FieldReader::FieldReader(const json::object& object, std::string path) : object_(object), path_(std::move(path)) {}

const json::value* FieldReader::find(std::string_view name) {
  known_.push_back(name);
  if (failed()) return nullptr;
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool FieldReader::boolean(std::string_view name, bool& out) {
  const json::value* value = find(name);
  if (value == nullptr) return false;
  if (!value->is_bool()) {
    refuse(name, fmt::format("is {}, must be true or false", describe_value(*value)));
    return false;
  }
  out = value->get_bool();
  return true;
}

bool FieldReader::number(std::string_view name, float& out) {
  const json::value* value = find(name);
  if (value == nullptr) return false;
  const NumberRule& rule = number_rule(name);
  if (!value->is_number() || !in_range(rule, value->to_number<double>())) {
    refuse(name, fmt::format("is {}, {}", describe_value(*value), describe(rule)));
    return false;
  }
  out = static_cast<float>(value->to_number<double>());
  // A tiny positive double may round to the excluded end.
  if (!in_range(rule, out)) out = std::nextafter(static_cast<float>(rule.min), static_cast<float>(rule.max));
  return true;
}

bool FieldReader::integer(std::string_view name, std::int64_t& out) {
  const json::value* value = find(name);
  if (value == nullptr) return false;
  const NumberRule& rule = number_rule(name);
  const std::optional<std::int64_t> exact = exact_integer(*value);
  if (!exact || !in_range(rule, static_cast<double>(*exact))) {
    refuse(name, fmt::format("is {}, {}", describe_value(*value), describe(rule)));
    return false;
  }
  out = *exact;
  return true;
}

bool FieldReader::integer(std::string_view name, std::int32_t& out) {
  std::int64_t wide = out;
  if (!integer(name, wide)) return false;
  out = static_cast<std::int32_t>(wide);  // the rules of such fields end at 2^31 - 1
  return true;
}

bool FieldReader::string(std::string_view name, std::string& out) {
  const json::value* value = find(name);
  if (value == nullptr) return false;
  if (!value->is_string()) {
    refuse(name, fmt::format("is {}, must be a string", describe_value(*value)));
    return false;
  }
  out.assign(value->get_string().data(), value->get_string().size());
  return true;
}

const json::array* FieldReader::array(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    refuse(name, fmt::format("is {}, must be an array", describe_value(*value)));
    return nullptr;
  }
  return &value->get_array();
}

const json::object* FieldReader::object(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    refuse(name, fmt::format("is {}, must be an object", describe_value(*value)));
    return nullptr;
  }
  return &value->get_object();
}

void FieldReader::refuse(std::string_view name, std::string message) {
  const std::string field = path_ + std::string(name);
  fail(ApiError(400, "invalid_request", fmt::format("{} {}", field, message), field));
}

void FieldReader::fail(ApiError error) {
  if (!failed()) error_ = std::move(error);
}

std::vector<std::string> FieldReader::unknown_fields() const {
  constexpr std::size_t kMaxListed = 16;
  std::vector<std::string> unknown;
  for (const auto& field : object_) {
    if (unknown.size() == kMaxListed) break;
    const std::string_view name(field.key().data(), field.key().size());
    if (std::ranges::find(known_, name) == known_.end()) unknown.emplace_back(name);
  }
  return unknown;
}

std::optional<std::int64_t> exact_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (!value.is_double()) return std::nullopt;  // a uint64 here is above the largest int64
  constexpr double kEnd = 9007199254740992.0;   // 2^53: above, a double stands for several integers
  const double number = value.get_double();
  if (!(std::abs(number) <= kEnd) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::string describe_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
      return fmt::format("{}", value.get_int64());
    case json::kind::uint64:
      return fmt::format("{}", value.get_uint64());
    case json::kind::double_:
      return std::isfinite(value.get_double()) ? fmt::format("{:#}", value.get_double()) : "a number beyond all bounds";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

}  // namespace thalweg::server
