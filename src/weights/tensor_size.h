// Sizes of tensors in checked arithmetic: headers of files may say anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace thalweg::weights {

/// Product of the dimensions; empty when one is negative or the product does not fit.
std::optional<std::int64_t> checked_num_elements(std::span<const std::int64_t> shape);

/// Empty when the result does not fit.
std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b);

/// Smallest multiple of `alignment` that is at least `value`; empty when it does not fit.
std::optional<std::uint64_t> checked_align_up(std::uint64_t value, std::uint64_t alignment);

/// Whether [offset, offset + num_bytes) lies inside [0, size).
bool lies_inside(std::uint64_t offset, std::uint64_t num_bytes, std::uint64_t size);

}  // namespace thalweg::weights
