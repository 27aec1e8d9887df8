// Conversions between fp32 and the narrower float types, one value at a time. Rounding is to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace thalweg::device {

inline float float_from_bf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}

inline std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // a quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float float_from_f16(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16;
  const std::uint32_t magnitude = code & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  if (magnitude >= 0x400U) return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
  // Zero and denormals: multiples of 2^-24, exact in fp32.
  const float value = static_cast<float>(magnitude) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

inline std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and more
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is a multiple of 2^-24. Adding 0.5 leaves exactly those bits in the fp32 mantissa,
    // rounded by the addition itself.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

// The conversions of OCP's 8-bit and 4-bit types have no branches, so that loops over them are vectorised; fp32 is
// looked at as signed integers because those compare fast everywhere.

/// OCP E4M3: no infinities, 0x7f and 0xff are NaN, largest 448.
inline float float_from_f8_e4m3(std::uint8_t code) {
  const std::int32_t magnitude = code & 0x7f;
  const std::int32_t denormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-9F);
  const std::int32_t number = magnitude < 8 ? denormal : (magnitude << 20) + (120 << 23);
  const std::int32_t bits = magnitude == 0x7f ? 0x7fc00000 : number;
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) | static_cast<std::uint32_t>(code & 0x80) << 24);
}

/// What lies beyond the largest, infinities too, becomes the largest; NaN stays NaN.
inline std::uint8_t f8_e4m3_from_float(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & 0x7fffffff;
  // Below 2^-6 the result is a multiple of 2^-9. Adding 2^14 leaves exactly those bits in the fp32 mantissa, rounded
  // by the addition itself.
  const std::int32_t denormal = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) - 0x46800000;
  // 448 is 0x43e00000; what is larger must not overflow in the rounding.
  const std::int32_t limited = magnitude > 0x43e00000 ? 0x43e00000 : magnitude;
  const std::int32_t normal = ((limited + 0x7ffff + (limited >> 20 & 1)) >> 20) - (120 << 3);
  const std::int32_t number = magnitude < 0x3c800000 ? denormal : normal;
  const std::int32_t code = magnitude > 0x7f800000 ? 0x7f : number;
  return static_cast<std::uint8_t>(code | (bits >> 24 & 0x80));
}

/// OCP E8M0: 2^(code - 127), NaN for 255. No sign, no zero.
inline float float_from_f8_e8m0(std::uint8_t code) {
  const std::int32_t normal = code == 255 ? 0x7fc00000 : code << 23;
  return std::bit_cast<float>(code == 0 ? 0x00400000 : normal);  // 2^-127 is a denormal of fp32
}

/// The smallest power of two that is not below `value`; 255 (NaN) where E8M0 has none, and for NaN.
/// Precondition: positive, at least 2^-126.
inline std::uint8_t f8_e8m0_ceil(float value) {
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(value) + 0x7fffffU) >> 23;
  return static_cast<std::uint8_t>(exponent > 255 ? 255 : exponent);
}

/// OCP E2M1, the low 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
inline float float_from_f4_e2m1(std::uint8_t code) {
  const std::int32_t magnitude = code & 7;
  const std::int32_t denormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0.5F);
  const std::int32_t bits = magnitude < 2 ? denormal : (magnitude << 22) + (126 << 23);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) | static_cast<std::uint32_t>(code & 8) << 28);
}

/// What lies beyond the largest, infinities and NaN too, becomes the largest.
inline std::uint8_t f4_e2m1_from_float(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & 0x7fffffff;
  // Below 1 the result is a multiple of 0.5: as in f8_e4m3_from_float.
  const std::int32_t denormal = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + 0x1p22F) - 0x4a800000;
  const std::int32_t limited = magnitude > 0x40c00000 ? 0x40c00000 : magnitude;  // 6
  const std::int32_t normal = ((limited + 0x1fffff + (limited >> 22 & 1)) >> 22) - (126 << 1);
  const std::int32_t code = magnitude < 0x3f800000 ? denormal : normal;
  return static_cast<std::uint8_t>(code | (bits >> 28 & 8));
}

}  // namespace thalweg::device
