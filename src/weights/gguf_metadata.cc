#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "weights/gguf.h"
#include "weights/gguf_reader.h"
#include "weights/number.h"
#include "weights/printable.h"

namespace thalweg::weights {
namespace {

constexpr std::size_t kShownElements = 6;
constexpr std::size_t kShownBytes = 100;

std::string_view type_name(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "u8";
    case GgufType::kInt8:
      return "i8";
    case GgufType::kUint16:
      return "u16";
    case GgufType::kInt16:
      return "i16";
    case GgufType::kUint32:
      return "u32";
    case GgufType::kInt32:
      return "i32";
    case GgufType::kFloat32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "u64";
    case GgufType::kInt64:
      return "i64";
    case GgufType::kFloat64:
      return "f64";
  }
  return "unknown";
}

std::string type_name(const GgufValue& value) {
  if (!value.is_array) return std::string(type_name(value.type));
  return fmt::format("an array of {} {}", value.count, type_name(value.type));
}

template <typename T, typename As>
std::optional<Number> read_as(GgufReader& reader) {
  T value;
  if (!reader.read(value)) return std::nullopt;
  return Number(static_cast<As>(value));
}

// Empty for types that are no numbers.
std::optional<Number> read_number(GgufReader& reader, GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return read_as<std::uint8_t, std::int64_t>(reader);
    case GgufType::kInt8:
      return read_as<std::int8_t, std::int64_t>(reader);
    case GgufType::kUint16:
      return read_as<std::uint16_t, std::int64_t>(reader);
    case GgufType::kInt16:
      return read_as<std::int16_t, std::int64_t>(reader);
    case GgufType::kUint32:
      return read_as<std::uint32_t, std::int64_t>(reader);
    case GgufType::kInt32:
      return read_as<std::int32_t, std::int64_t>(reader);
    case GgufType::kFloat32:
      return read_as<float, double>(reader);
    case GgufType::kUint64:
      return read_as<std::uint64_t, std::uint64_t>(reader);
    case GgufType::kInt64:
      return read_as<std::int64_t, std::int64_t>(reader);
    case GgufType::kFloat64:
      return read_as<double, double>(reader);
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string number_text(Number number) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, number);
}

bool is_number(GgufType type) {
  return type != GgufType::kBool && type != GgufType::kString && type != GgufType::kArray;
}

bool is_integer(GgufType type) { return is_number(type) && type != GgufType::kFloat32 && type != GgufType::kFloat64; }

std::string element_text(GgufReader& reader, GgufType type) {
  if (type == GgufType::kString) {
    std::string_view text;
    return reader.read_string(text) ? printable(text, kShownBytes) : "?";
  }
  if (type == GgufType::kBool) {
    std::uint8_t value = 0;
    return reader.read(value) ? (value != 0 ? "true" : "false") : "?";
  }
  const std::optional<Number> number = read_number(reader, type);
  return number ? number_text(*number) : "?";
}

std::string value_text(const GgufValue& value) {
  GgufReader reader(value.bytes);
  if (!value.is_array) return element_text(reader, value.type);
  std::string shown = fmt::format("[{} {}]", value.count, type_name(value.type));
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(value.count, kShownElements); ++i) {
    shown += (i == 0 ? " " : ", ") + element_text(reader, value.type);
  }
  return value.count > kShownElements ? shown + ", ..." : shown;
}

}  // namespace

Result<GgufMetadata> GgufMetadata::create(std::vector<std::pair<std::string_view, GgufValue>> entries,
                                          std::string file) {
  CHECK_LE(entries.size(), UINT32_MAX);
  GgufMetadata metadata;
  metadata.entries_ = std::move(entries);
  metadata.file_ = std::move(file);
  metadata.by_key_.resize(metadata.entries_.size());
  std::iota(metadata.by_key_.begin(), metadata.by_key_.end(), 0u);
  const auto key = [&](std::uint32_t index) { return metadata.entries_[index].first; };
  std::ranges::sort(metadata.by_key_, {}, key);
  const auto twice = std::ranges::adjacent_find(metadata.by_key_, {}, key);
  if (twice != metadata.by_key_.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("metadata key '{}' appears twice in '{}'", printable(key(*twice)), metadata.file_));
  }
  return metadata;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto place =
      std::ranges::lower_bound(by_key_, key, {}, [&](std::uint32_t index) { return entries_[index].first; });
  if (place == by_key_.end() || entries_[*place].first != key) return nullptr;
  return &entries_[*place].second;
}

Result<const GgufValue*> GgufMetadata::require(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("'{}' has no metadata key '{}'", file_, printable(key)));
  }
  return value;
}

std::unexpected<Error> GgufMetadata::wrong_type(std::string_view key, const GgufValue& found,
                                                std::string_view needed) const {
  return wrong_value(key, type_name(found), needed);
}

std::unexpected<Error> GgufMetadata::wrong_value(std::string_view key, std::string_view found,
                                                 std::string_view needed) const {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("metadata key '{}' of '{}' is {}, needs {}", printable(key), file_, found, needed));
}

Result<std::int64_t> GgufMetadata::get_int(std::string_view key) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if ((*value)->is_array || !is_number((*value)->type)) return wrong_type(key, **value, "an integer");
  GgufReader reader((*value)->bytes);
  const std::optional<Number> number = read_number(reader, (*value)->type);
  CHECK(number.has_value());
  const std::optional<std::int64_t> exact = exact_int(*number);
  if (!exact) return wrong_value(key, number_text(*number), "a 64-bit integer");
  return *exact;
}

Result<double> GgufMetadata::get_float(std::string_view key) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if ((*value)->is_array || !is_number((*value)->type)) return wrong_type(key, **value, "a number");
  GgufReader reader((*value)->bytes);
  const std::optional<Number> number = read_number(reader, (*value)->type);
  CHECK(number.has_value());
  const std::optional<double> exact = exact_float(*number);
  if (!exact) return wrong_value(key, number_text(*number), "a finite number that a 64-bit float holds exactly");
  return *exact;
}

Result<bool> GgufMetadata::get_bool(std::string_view key) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if ((*value)->is_array || (*value)->type != GgufType::kBool) return wrong_type(key, **value, "a bool");
  const auto byte = static_cast<unsigned>((*value)->bytes.front());
  if (byte > 1) return wrong_value(key, fmt::format("a bool of value {}", byte), "0 or 1");
  return byte == 1;
}

Result<std::string> GgufMetadata::get_string(std::string_view key) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if ((*value)->is_array || (*value)->type != GgufType::kString) return wrong_type(key, **value, "a string");
  GgufReader reader((*value)->bytes);
  std::string_view text;
  if (!reader.read_string(text)) return wrong_value(key, "a string that changed on disk", "a file at rest");
  return std::string(text);
}

template <typename T, typename Convert>
Result<std::vector<T>> GgufMetadata::numbers(std::string_view key, bool (*is_accepted)(GgufType),
                                             std::string_view needed_type, std::string_view needed_values,
                                             Convert convert) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if (!(*value)->is_array || !is_accepted((*value)->type)) return wrong_type(key, **value, needed_type);
  std::vector<T> converted;
  converted.reserve((*value)->count);
  GgufReader reader((*value)->bytes);
  for (std::uint64_t i = 0; i < (*value)->count; ++i) {
    const std::optional<Number> number = read_number(reader, (*value)->type);
    CHECK(number.has_value());
    const std::optional<T> exact = convert(*number);
    if (!exact) return wrong_value(key, fmt::format("{} at [{}]", number_text(*number), i), needed_values);
    converted.push_back(*exact);
  }
  return converted;
}

Result<std::vector<std::int64_t>> GgufMetadata::get_ints(std::string_view key) const {
  return numbers<std::int64_t>(key, is_number, "an array of integers", "64-bit integers", exact_int);
}

Result<std::vector<double>> GgufMetadata::get_floats(std::string_view key) const {
  return numbers<double>(key, is_number, "an array of numbers", "finite numbers", exact_float);
}

Result<std::vector<std::string>> GgufMetadata::get_strings(std::string_view key) const {
  const Result<std::vector<std::string_view>> views = string_array(key);
  if (!views) return std::unexpected(views.error());
  return std::vector<std::string>(views->begin(), views->end());
}

Result<std::vector<std::string_view>> GgufMetadata::string_array(std::string_view key) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if (!(*value)->is_array || (*value)->type != GgufType::kString) {
    return wrong_type(key, **value, "an array of string");
  }
  std::vector<std::string_view> strings;
  strings.reserve((*value)->count);
  GgufReader reader((*value)->bytes);
  for (std::uint64_t i = 0; i < (*value)->count; ++i) {
    std::string_view text;
    // The lengths were checked when the file was opened, but another process may have written to it since.
    if (!reader.read_string(text)) return wrong_value(key, "an array that changed on disk", "a file at rest");
    strings.push_back(text);
  }
  return strings;
}

Result<std::vector<float>> GgufMetadata::float_array(std::string_view key) const {
  const Result<const GgufValue*> value = require(key);
  if (!value) return std::unexpected(value.error());
  if (!(*value)->is_array || (*value)->type != GgufType::kFloat32) {
    return wrong_type(key, **value, "an array of f32");
  }
  std::vector<float> floats((*value)->count);
  if (!floats.empty()) std::memcpy(floats.data(), (*value)->bytes.data(), (*value)->bytes.size());
  return floats;
}

Result<std::vector<std::int32_t>> GgufMetadata::int_array(std::string_view key) const {
  return numbers<std::int32_t>(key, is_integer, "an array of i32", "32-bit integers",
                               [](const Number& number) -> std::optional<std::int32_t> {
                                 const std::optional<std::int64_t> exact = exact_int(number);
                                 if (!exact || !std::in_range<std::int32_t>(*exact)) return std::nullopt;
                                 return static_cast<std::int32_t>(*exact);
                               });
}

std::vector<std::pair<std::string, std::string>> GgufMetadata::describe() const {
  std::vector<std::pair<std::string, std::string>> shown;
  shown.reserve(entries_.size());
  for (const auto& [key, value] : entries_) shown.emplace_back(printable(key), value_text(value));
  return shown;
}

}  // namespace thalweg::weights
