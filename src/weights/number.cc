#include "weights/number.h"

#include <cmath>
#include <limits>

namespace thalweg::weights {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

std::optional<std::int64_t> from(std::int64_t number) { return number; }

std::optional<std::int64_t> from(std::uint64_t number) {
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::optional<std::int64_t> from(double number) {
  if (!(number >= -kTwoTo63 && number < kTwoTo63) || number != std::trunc(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// An integer of at most 64 bits is a double exactly when it survives the way there and back.
std::optional<double> float_from(std::int64_t number) {
  const auto converted = static_cast<double>(number);
  if (converted >= kTwoTo63 || static_cast<std::int64_t>(converted) != number) return std::nullopt;
  return converted;
}

std::optional<double> float_from(std::uint64_t number) {
  const auto converted = static_cast<double>(number);
  if (converted >= 2 * kTwoTo63 || static_cast<std::uint64_t>(converted) != number) return std::nullopt;
  return converted;
}

std::optional<double> float_from(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace

std::optional<std::int64_t> exact_int(Number number) {
  return std::visit([](auto value) { return from(value); }, number);
}

std::optional<double> exact_float(Number number) {
  return std::visit([](auto value) { return float_from(value); }, number);
}

}  // namespace thalweg::weights
