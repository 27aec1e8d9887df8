// One cache element in portable C++: exact widening, rounding to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/dtype.h"
#include "device/float_types.h"

namespace thalweg::kernels::attention {

inline float load_element(const std::byte* base, device::DType dtype, std::int64_t index) {
  if (dtype == device::DType::kF32) {
    float value;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, base + index * 2, 2);
  return dtype == device::DType::kF16 ? device::float_from_f16(bits) : device::float_from_bf16(bits);
}

inline void store_element(std::byte* base, device::DType dtype, std::int64_t index, float value) {
  if (dtype == device::DType::kF32) {
    std::memcpy(base + index * 4, &value, 4);
    return;
  }
  const std::uint16_t bits =
      dtype == device::DType::kF16 ? device::f16_from_float(value) : device::bf16_from_float(value);
  std::memcpy(base + index * 2, &bits, 2);
}

}  // namespace thalweg::kernels::attention
