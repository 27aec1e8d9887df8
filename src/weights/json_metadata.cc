#include "weights/json_metadata.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "weights/number.h"
#include "weights/printable.h"

namespace thalweg::weights {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kShownElements = 6;
constexpr std::size_t kShownBytes = 100;

// Every value costs memory in proportion to its text, so the limit on file sizes bounds this.
Result<json::object> parse_object(std::string_view text, const std::string& file) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::parser parser({}, options);
  json::error_code error;
  const std::size_t end = parser.write(text, error);
  if (error) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no valid JSON: {} on line {}", file, error.message(), line));
  }
  json::value value = parser.release();
  if (!value.is_object()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' holds a JSON {}, needs an object", file, json::to_string(value.kind()).data()));
  }
  return std::move(value.get_object());
}

std::string type_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a bool";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "the number " + json::serialize(value);
    case json::kind::string:
      return fmt::format("the string '{}'", printable(value.get_string(), kShownBytes));
    case json::kind::array:
      return fmt::format("an array of {}", value.get_array().size());
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

std::optional<Number> number_of(const json::value& value) {
  if (const auto* number = value.if_int64()) return *number;
  if (const auto* number = value.if_uint64()) return *number;
  if (const auto* number = value.if_double()) return *number;
  return std::nullopt;
}

std::optional<std::int64_t> int_of(const json::value& value) {
  const std::optional<Number> number = number_of(value);
  return number ? exact_int(*number) : std::nullopt;
}

std::optional<double> float_of(const json::value& value) {
  const std::optional<Number> number = number_of(value);
  return number ? exact_float(*number) : std::nullopt;
}

std::optional<bool> bool_of(const json::value& value) {
  if (const bool* truth = value.if_bool()) return *truth;
  return std::nullopt;
}

std::optional<std::string> string_of(const json::value& value) {
  if (const json::string* text = value.if_string()) return std::string(*text);
  return std::nullopt;
}

const json::value* find_in(const json::object& object, std::string_view key) {
  if (const json::value* value = object.if_contains(key)) return value;
  for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    const json::value* member = object.if_contains(key.substr(0, dot));
    if (member == nullptr || !member->is_object()) continue;
    return find_in(member->get_object(), key.substr(dot + 1));
  }
  return nullptr;
}

std::string value_text(const json::value& value) {
  if (const json::string* text = value.if_string()) return printable(*text, kShownBytes);
  if (const json::array* array = value.if_array()) {
    std::string shown = fmt::format("[{}]", array->size());
    for (std::size_t i = 0; i < std::min(array->size(), kShownElements); ++i) {
      const json::value& element = (*array)[i];
      shown += i == 0 ? " " : ", ";
      shown += element.is_array() || element.is_object() ? "..." : value_text(element);
    }
    return array->size() > kShownElements ? shown + ", ..." : shown;
  }
  return json::serialize(value);
}

void describe_into(const json::object& object, const std::string& prefix,
                   std::vector<std::pair<std::string, std::string>>& shown) {
  for (const auto& member : object) {
    const std::string key = prefix + printable(member.key());
    if (member.value().is_object() && !member.value().get_object().empty()) {
      describe_into(member.value().get_object(), key + ".", shown);
    } else {
      shown.emplace_back(key, value_text(member.value()));
    }
  }
}

}  // namespace

Result<JsonMetadata> JsonMetadata::parse(std::string_view text, std::string file) {
  Result<json::object> root = parse_object(text, file);
  if (!root) return std::unexpected(std::move(root.error()));
  JsonMetadata metadata(std::move(file));
  metadata.root_ = std::make_unique<const json::object>(std::move(*root));
  return metadata;
}

JsonMetadata::JsonMetadata(std::string file) : root_(std::make_unique<const json::object>()), file_(std::move(file)) {}
JsonMetadata::JsonMetadata(JsonMetadata&&) noexcept = default;
JsonMetadata& JsonMetadata::operator=(JsonMetadata&&) noexcept = default;
JsonMetadata::~JsonMetadata() = default;

const json::value* JsonMetadata::find(std::string_view key) const {
  const json::value* value = find_in(*root_, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<const json::value*> JsonMetadata::require(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return fail(ErrorCode::kNotFound, fmt::format("'{}' has no '{}'", file_, printable(key)));
  return value;
}

template <typename T, typename Convert>
Result<T> JsonMetadata::scalar(std::string_view key, std::string_view needed, Convert convert) const {
  const Result<const json::value*> value = require(key);
  if (!value) return std::unexpected(value.error());
  std::optional<T> converted = convert(**value);
  if (!converted) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' of '{}' is {}, needs {}", printable(key), file_, type_name(**value), needed));
  }
  return std::move(*converted);
}

template <typename T, typename Convert>
Result<std::vector<T>> JsonMetadata::array(std::string_view key, std::string_view needed, Convert convert) const {
  const Result<const json::value*> value = require(key);
  if (!value) return std::unexpected(value.error());
  const json::array* elements = (*value)->if_array();
  if (elements == nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' of '{}' is {}, needs an array of {}", printable(key),
                                                         file_, type_name(**value), needed));
  }
  std::vector<T> converted;
  converted.reserve(elements->size());
  for (const json::value& element : *elements) {
    std::optional<T> one = convert(element);
    if (!one) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}[{}]' of '{}' is {}, needs an array of {}", printable(key), converted.size(), file_,
                              type_name(element), needed));
    }
    converted.push_back(std::move(*one));
  }
  return converted;
}

Result<std::int64_t> JsonMetadata::get_int(std::string_view key) const {
  return scalar<std::int64_t>(key, "a 64-bit integer", int_of);
}
Result<double> JsonMetadata::get_float(std::string_view key) const {
  return scalar<double>(key, "a finite number that a 64-bit float holds exactly", float_of);
}
Result<bool> JsonMetadata::get_bool(std::string_view key) const { return scalar<bool>(key, "a bool", bool_of); }
Result<std::string> JsonMetadata::get_string(std::string_view key) const {
  return scalar<std::string>(key, "a string", string_of);
}
Result<std::vector<std::int64_t>> JsonMetadata::get_ints(std::string_view key) const {
  return array<std::int64_t>(key, "64-bit integers", int_of);
}
Result<std::vector<double>> JsonMetadata::get_floats(std::string_view key) const {
  return array<double>(key, "finite numbers", float_of);
}
Result<std::vector<std::string>> JsonMetadata::get_strings(std::string_view key) const {
  return array<std::string>(key, "strings", string_of);
}

std::vector<std::pair<std::string, std::string>> JsonMetadata::describe() const {
  std::vector<std::pair<std::string, std::string>> shown;
  describe_into(*root_, "", shown);
  return shown;
}

Result<std::map<std::string, std::string>> parse_weight_map(std::string_view text, const std::string& file) {
  const Result<json::object> root = parse_object(text, file);
  if (!root) return std::unexpected(root.error());
  const json::value* map = root->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' has no object 'weight_map'", file));
  }
  std::map<std::string, std::string> files;
  for (const auto& member : map->get_object()) {
    const json::string* name = member.value().if_string();
    if (name == nullptr) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'weight_map.{}' of '{}' is {}, needs a string",
                                                           printable(member.key()), file, type_name(member.value())));
    }
    files.emplace(member.key(), *name);
  }
  return files;
}

}  // namespace thalweg::weights
