#include "weights/tensor_size.h"

#include <algorithm>

namespace thalweg::weights {

std::optional<std::int64_t> checked_num_elements(std::span<const std::int64_t> shape) {
  if (std::ranges::any_of(shape, [](std::int64_t dimension) { return dimension < 0; })) return std::nullopt;
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(product, dimension, &product)) return std::nullopt;
  }
  return product;
}

std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<std::uint64_t> checked_align_up(std::uint64_t value, std::uint64_t alignment) {
  std::uint64_t raised = 0;
  if (__builtin_add_overflow(value, alignment - 1, &raised)) return std::nullopt;
  return raised / alignment * alignment;
}

bool lies_inside(std::uint64_t offset, std::uint64_t num_bytes, std::uint64_t size) {
  return offset <= size && num_bytes <= size - offset;
}

}  // namespace thalweg::weights
