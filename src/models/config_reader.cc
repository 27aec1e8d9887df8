#include "models/config_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace thalweg::models {

ConfigReader::ConfigReader(const weights::Checkpoint& checkpoint, std::string prefix)
    : checkpoint_(checkpoint), prefix_(std::move(prefix)) {}

std::string ConfigReader::full(std::string_view key) const { return prefix_ + std::string(key); }

bool ConfigReader::has(std::string_view key) const { return checkpoint_.metadata().has(full(key)); }

void ConfigReader::keep(Error error) {
  if (!error_) error_ = std::move(error);
}

void ConfigReader::reject(std::string_view key, std::string_view found, std::string_view needed) {
  keep({ErrorCode::kInvalidArgument,
        fmt::format("{}: {} is {}, needed {}", checkpoint_.path(), full(key), found, needed), ""});
}

void ConfigReader::unsupported(std::string_view key, std::string_view found, std::string_view supported) {
  keep({ErrorCode::kUnimplemented,
        fmt::format("{}: {} is {}, supported: {}", checkpoint_.path(), full(key), found, supported), ""});
}

std::int32_t ConfigReader::count(std::string_view key, std::int64_t max, std::optional<std::int64_t> fallback) {
  if (!has(key)) {
    if (fallback) return static_cast<std::int32_t>(*fallback);
    reject(key, "absent", fmt::format("a whole number from 1 to {}", max));
    return 1;
  }
  const Result<std::int64_t> value = checkpoint_.metadata().get_int(full(key));
  if (!value) {
    keep(value.error());
    return 1;
  }
  if (*value < 1 || *value > max) {
    reject(key, fmt::to_string(*value), fmt::format("a whole number from 1 to {}", max));
    return 1;
  }
  return static_cast<std::int32_t>(*value);
}

std::int32_t ConfigReader::count_or_zero(std::string_view key, std::int64_t max, std::int64_t fallback) {
  if (has(key)) {
    const Result<std::int64_t> value = checkpoint_.metadata().get_int(full(key));
    if (value && *value == 0) return 0;
  }
  return count(key, max, fallback);
}

double ConfigReader::number(std::string_view key, double min, double max, std::optional<double> fallback) {
  if (!has(key)) {
    if (fallback) return *fallback;
    reject(key, "absent", fmt::format("a number from {} to {}", min, max));
    return min;
  }
  const Result<double> value = checkpoint_.metadata().get_float(full(key));
  if (!value) {
    keep(value.error());
    return min;
  }
  if (!std::isfinite(*value) || *value < min || *value > max) {
    reject(key, fmt::to_string(*value), fmt::format("a number from {} to {}", min, max));
    return min;
  }
  return *value;
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  if (!has(key)) return fallback;
  const Result<bool> value = checkpoint_.metadata().get_bool(full(key));
  if (value) return *value;
  keep(value.error());
  return fallback;
}

std::string ConfigReader::text(std::string_view key, std::string fallback) {
  if (!has(key)) return fallback;
  Result<std::string> value = checkpoint_.metadata().get_string(full(key));
  if (value) return std::move(*value);
  keep(value.error());
  return fallback;
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) {
  if (!has(key)) return {};
  Result<std::vector<std::int64_t>> value = checkpoint_.metadata().get_ints(full(key));
  if (value) return std::move(*value);
  keep(value.error());
  return {};
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  if (!has(key)) return {};
  Result<std::vector<std::string>> value = checkpoint_.metadata().get_strings(full(key));
  if (value) return std::move(*value);
  keep(value.error());
  return {};
}

Status ConfigReader::status() const {
  if (error_) return std::unexpected(*error_);
  return {};
}

}  // namespace thalweg::models
