// Numbers of metadata and their conversions without loss.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace thalweg::weights {

using Number = std::variant<std::int64_t, std::uint64_t, double>;

/// Empty unless the integer equals the number.
std::optional<std::int64_t> exact_int(Number number);
/// Empty unless the double equals the number and is finite.
std::optional<double> exact_float(Number number);

}  // namespace thalweg::weights
