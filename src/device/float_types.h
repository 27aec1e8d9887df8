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
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
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

/// A float type of few bits without infinities: fp32's exponent field of its smallest normal number, its mantissa, and
/// its largest number as fp32 bits. The conversions of magnitudes are sums and shifts without a choice, so that
/// compilers vectorise loops over them. What lies beyond the largest, NaN too, counts as the largest.
template <std::int32_t kLowestExponent, int kMantissaBits, std::int32_t kLargest>
struct NarrowFloat {
  /// The nearest number of the type.
  static float round(std::int32_t bits) {
    const Sum sum = add_large(bits);
    return sum.value - sum.large;
  }

  static std::int32_t encode(std::int32_t bits) {
    const Sum sum = add_large(bits);
    const std::int32_t num_steps = std::bit_cast<std::int32_t>(sum.value) - std::bit_cast<std::int32_t>(sum.large);
    return num_steps + ((sum.exponent - kLowest) >> (23 - kMantissaBits));
  }

  static float decode(std::int32_t code) {
    // A denormal is read as 1.m of the lowest exponent, of which the 1 is then taken away.
    const std::int32_t is_denormal = (code - (1 << kMantissaBits)) >> 31;  // all bits or none
    const std::int32_t number = (code << (23 - kMantissaBits)) + kLowest - ((1 + is_denormal) << 23);
    return std::bit_cast<float>(number) - std::bit_cast<float>(is_denormal & kLowest);
  }

 private:
  static constexpr std::int32_t kLowest = kLowestExponent << 23;

  struct Sum {
    std::int32_t exponent;
    float large;
    float value;
  };

  // The number plus a power of two so large that only the type's own bits find room, rounded by the addition itself:
  // what is left of it is the number of steps of this exponent.
  static Sum add_large(std::int32_t bits) {
    const std::int32_t limited = bits < kLargest ? bits : kLargest;
    const std::int32_t field = limited & 0x7f800000;
    const std::int32_t exponent = field > kLowest ? field : kLowest;
    const float large = std::bit_cast<float>(exponent + ((23 - kMantissaBits) << 23));
    return {exponent, large, std::bit_cast<float>(limited) + large};
  }
};
using F8E4M3 = NarrowFloat<121, 3, 0x43e00000>;  // 2^-6, 448
using F4E2M1 = NarrowFloat<127, 1, 0x40c00000>;  // 1, 6

/// OCP E4M3: no infinities, 0x7f and 0xff are NaN, largest 448.
inline float float_from_f8_e4m3(std::uint8_t code) {
  const std::int32_t magnitude = code & 0x7f;
  const std::int32_t nan = ((0x7e - magnitude) >> 31) & 0x7fc00000;
  const std::int32_t sign = (code & 0x80) << 24;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(F8E4M3::decode(magnitude)) | nan | sign);
}

/// What lies beyond the largest, infinities too, becomes the largest; NaN stays NaN.
inline std::uint8_t f8_e4m3_from_float(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & 0x7fffffff;
  const std::int32_t nan = ((0x7f800000 - magnitude) >> 31) & 0x7f;
  return static_cast<std::uint8_t>(F8E4M3::encode(magnitude) | nan | (bits >> 24 & 0x80));
}

/// OCP E2M1, the low 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
inline float float_from_f4_e2m1(std::uint8_t code) {
  const std::int32_t sign = (code & 8) << 28;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(F4E2M1::decode(code & 7)) | sign);
}

/// What lies beyond the largest, infinities and NaN too, becomes the largest.
inline std::uint8_t f4_e2m1_from_float(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  return static_cast<std::uint8_t>(F4E2M1::encode(bits & 0x7fffffff) | (bits >> 28 & 8));
}

/// OCP E8M0: 2^(code - 127), NaN for 255. No sign, no zero.
inline float float_from_f8_e8m0(std::uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000);
  return std::bit_cast<float>(code == 0 ? 0x00400000 : code << 23);  // 2^-127 is a denormal of fp32
}

/// The smallest power of two that is not below `value`; 255 (NaN) where E8M0 has none, and for NaN.
/// Precondition: positive, at least 2^-126.
inline std::uint8_t f8_e8m0_ceil(float value) {
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(value) + 0x7fffffU) >> 23;
  return static_cast<std::uint8_t>(exponent > 255 ? 255 : exponent);
}

}  // namespace thalweg::device
