#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "device/float_types.h"
#include "device/thread_pool.h"
#include "kernels/quant/quant.h"

namespace thalweg::kernels {
namespace {

constexpr QuantFormat kFormats[] = {QuantFormat::kF8Block32, QuantFormat::kF4Block32, QuantFormat::kF4Block16};

// ---- The formulas of the specification in double, over grids that are written out. ----

std::vector<double> f4_grid() { return {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}; }

std::vector<double> f8_grid() {
  std::vector<double> grid;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code / 8;
    grid.push_back(exponent == 0 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, exponent - 10));
  }
  return grid;
}

// The nearest of the grid, ties to the even index; the largest for what lies beyond.
double nearest(const std::vector<double>& grid, double value) {
  const double magnitude = std::min(std::fabs(value), grid.back());
  std::size_t above = 0;
  while (grid[above] < magnitude) ++above;
  std::size_t index = above;
  if (grid[above] != magnitude) {
    const double to_above = grid[above] - magnitude;
    const double to_below = magnitude - grid[above - 1];
    if (to_below < to_above || (to_below == to_above && above % 2 == 1)) index = above - 1;
  }
  return std::copysign(grid[index], value);
}

double power_of_two_not_below(float value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

double expected_scale(QuantFormat format, float max) {
  if (format == QuantFormat::kF8Block32) return power_of_two_not_below(std::max(max, 1e-4F) * (1.0F / 448.0F));
  if (format == QuantFormat::kF4Block32) {
    return power_of_two_not_below(std::max(max, std::ldexp(6.0F, -126)) * (1.0F / 6.0F));
  }
  return nearest(f8_grid(), std::max(max, std::ldexp(6.0F, -9)) / 6.0F);
}

// One finite group.
std::vector<float> expected_values(QuantFormat format, std::span<const float> x) {
  static const std::vector<double> kF8 = f8_grid();
  static const std::vector<double> kF4 = f4_grid();
  float max = 0;
  for (const float value : x) max = std::max(max, std::fabs(value));
  const double scale = expected_scale(format, max);
  std::vector<float> values;
  for (const float value : x) {
    const auto quotient = static_cast<float>(value / scale);
    values.push_back(static_cast<float>(nearest(format == QuantFormat::kF8Block32 ? kF8 : kF4, quotient) * scale));
  }
  return values;
}

std::vector<float> fake_quantized(QuantFormat format, std::span<const float> x) {
  std::vector<float> values(x.size());
  fake_quantize_row(format, x.data(), static_cast<std::int64_t>(x.size()), values.data());
  return values;
}

std::vector<float> stored_and_read(QuantFormat format, std::span<const float> x) {
  const auto num_cols = static_cast<std::int64_t>(x.size());
  std::vector<std::byte> row(static_cast<std::size_t>(quant_row_bytes(format, num_cols)));
  quantize_row(format, x.data(), num_cols, row.data());
  std::vector<float> values(x.size());
  dequantize_row(format, row.data(), num_cols, values.data());
  return values;
}

// Bits, so that -0 differs from 0; any NaN equals any.
::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

std::vector<float> group_of(QuantFormat format, std::initializer_list<float> leading) {
  std::vector<float> group(leading);
  group.resize(static_cast<std::size_t>(quant_group(format)));
  return group;
}

std::vector<float> normal_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// DeepSeek-V4.1 specification, appendix A.2.
TEST(Quant, KnownAnswers) {
  struct Case {
    QuantFormat format;
    float scale;
    std::initializer_list<float> values;
  };
  const Case cases[] = {
      {QuantFormat::kF8Block32,
       0x1p-10F,
       {0.3125F, -0.1015625F, 0.0126953125F, -0.00067138671875F, 0.05078125F, 0.3125F, 0.0F, -0.25F}},
      {QuantFormat::kF4Block32, 0x1p-4F, {0.25F, -0.09375F, 0.0F, -0.0F, 0.0625F, 0.25F, 0.0F, -0.25F}},
      {QuantFormat::kF4Block16,
       0.05078125F,
       {0.3046875F, -0.1015625F, 0.0F, -0.0F, 0.05078125F, 0.3046875F, 0.0F, -0.203125F}},
  };
  for (const auto& [format, scale, values] : cases) {
    const std::vector<float> x = group_of(format, {0.3F, -0.1F, 0.0123F, -0.0007F, 0.05F, 0.2999F, 0.0F, -0.25F});
    EXPECT_TRUE(same_bits(fake_quantized(format, x), group_of(format, values))) << static_cast<int>(format);
    std::vector<std::byte> row(static_cast<std::size_t>(quant_row_bytes(format, quant_group(format))));
    quantize_row(format, x.data(), quant_group(format), row.data());
    const auto code = std::to_integer<std::uint8_t>(row.back());
    EXPECT_EQ(format == QuantFormat::kF4Block16 ? device::float_from_f8_e4m3(code) : device::float_from_f8_e8m0(code),
              scale);
  }
}

// Neighbouring bf16 values in a group, with and without a larger one that sets the scale.
TEST(Quant, EveryFiniteBf16ValueFollowsTheFormulas) {
  for (const QuantFormat format : kFormats) {
    const std::int64_t group = quant_group(format);
    for (const float largest : {0.0F, 1.0F, 448.0F, 0.3F, 2.1e3F}) {
      for (std::int64_t first = 0; first < 0x7f80; first += group - 1) {
        std::vector<float> x{largest};
        for (std::int64_t i = 0; i < group - 1; ++i) {
          const auto code = static_cast<std::uint16_t>(std::min<std::int64_t>(first + i, 0x7f7f) | (i % 2) << 15);
          x.push_back(device::float_from_bf16(code));
        }
        ASSERT_TRUE(same_bits(fake_quantized(format, x), expected_values(format, x)))
            << static_cast<int>(format) << " from code " << first << ", largest " << largest;
      }
    }
  }
}

TEST(Quant, TiesGoToTheEvenCode) {
  // The largest makes the scale 1, so these are halfway between two codes.
  EXPECT_TRUE(
      same_bits(fake_quantized(QuantFormat::kF4Block32,
                               group_of(QuantFormat::kF4Block32, {6, 0.25F, 0.75F, 1.25F, -1.75F, 2.5F, 3.5F, -5})),
                group_of(QuantFormat::kF4Block32, {6, 0, 1, 1, -2, 2, 4, -4})));
  EXPECT_TRUE(
      same_bits(fake_quantized(QuantFormat::kF4Block16,
                               group_of(QuantFormat::kF4Block16, {6, 0.25F, 0.75F, 1.25F, -1.75F, 2.5F, 3.5F, -5})),
                group_of(QuantFormat::kF4Block16, {6, 0, 1, 1, -2, 2, 4, -4})));
  EXPECT_TRUE(
      same_bits(fake_quantized(QuantFormat::kF8Block32,
                               group_of(QuantFormat::kF8Block32, {448, 17, 19, -432, 0x1p-10F, 0x3p-10F, -0x5p-10F})),
                group_of(QuantFormat::kF8Block32, {448, 16, 20, -448, 0, 0x1p-8F, -0x1p-8F})));
}

// Products with a reciprocal of the scale would miss some of these.
TEST(Quant, TiesStayTiesAtEveryScale) {
  constexpr QuantFormat kFormat = QuantFormat::kF4Block16;
  for (std::uint8_t code = 1; code < 0x7f; ++code) {
    const float scale = device::float_from_f8_e4m3(code);
    std::vector<float> x = group_of(kFormat, {6, 0.25F, 0.75F, 1.25F, -1.75F, 2.5F, 3.5F, -5});
    std::vector<float> expected = group_of(kFormat, {6, 0, 1, 1, -2, 2, 4, -4});
    for (float& value : x) value *= scale;
    for (float& value : expected) value *= scale;
    ASSERT_TRUE(same_bits(fake_quantized(kFormat, x), expected)) << scale;
    ASSERT_TRUE(same_bits(stored_and_read(kFormat, x), expected)) << scale;
  }
}

TEST(Quant, ScalesHaveAFloorAndACeiling) {
  const auto scale_code = [](QuantFormat format, float largest) {
    const std::vector<float> x = group_of(format, {largest});
    std::vector<std::byte> row(static_cast<std::size_t>(quant_row_bytes(format, quant_group(format))));
    quantize_row(format, x.data(), quant_group(format), row.data());
    return std::to_integer<int>(row.back());
  };
  EXPECT_EQ(scale_code(QuantFormat::kF8Block32, 0.0F), 127 - 22);  // 1e-4 / 448 is just below 2^-22
  EXPECT_EQ(scale_code(QuantFormat::kF4Block32, 0.0F), 1);         // 2^-126
  EXPECT_EQ(scale_code(QuantFormat::kF4Block16, 0.0F), 1);         // 2^-9
  EXPECT_EQ(scale_code(QuantFormat::kF4Block16, 1e6F), 0x7e);      // 448
  EXPECT_EQ(fake_quantized(QuantFormat::kF4Block16, group_of(QuantFormat::kF4Block16, {-1e6F}))[0], -2688.0F);
  // A scale that was rounded down leaves quotients above 6.
  EXPECT_EQ(fake_quantized(QuantFormat::kF4Block16, group_of(QuantFormat::kF4Block16, {6.3F}))[0], 6.0F);
  for (const QuantFormat format : kFormats) {
    const std::vector<float> zeros = group_of(format, {0.0F, -0.0F});
    EXPECT_TRUE(same_bits(stored_and_read(format, zeros), zeros));
  }
}

TEST(Quant, WhatIsNotFiniteStaysInItsGroup) {
  for (const QuantFormat format : kFormats) {
    const auto group = static_cast<std::size_t>(quant_group(format));
    const std::vector<float> x = normal_values(3 * group, 1);
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> spoilt = x;
      spoilt[group + 3] = bad;
      std::vector<float> expected = fake_quantized(format, x);
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(group), group,
                  std::numeric_limits<float>::quiet_NaN());
      EXPECT_TRUE(same_bits(fake_quantized(format, spoilt), expected)) << static_cast<int>(format) << " " << bad;
      EXPECT_TRUE(same_bits(stored_and_read(format, spoilt), expected)) << static_cast<int>(format) << " " << bad;
    }
  }
}

TEST(Quant, RowsHoldAllCodesThenAllScales) {
  EXPECT_EQ(quant_row_bytes(QuantFormat::kF8Block32, 512), 512 + 16);
  EXPECT_EQ(quant_row_bytes(QuantFormat::kF4Block32, 128), 64 + 4);
  EXPECT_EQ(quant_row_bytes(QuantFormat::kF4Block16, 512), 256 + 32);
  const auto bytes_of = [](QuantFormat format, const std::vector<float>& x) {
    std::vector<std::byte> row(static_cast<std::size_t>(quant_row_bytes(format, static_cast<std::int64_t>(x.size()))));
    quantize_row(format, x.data(), static_cast<std::int64_t>(x.size()), row.data());
    std::vector<int> numbers;
    for (const std::byte byte : row) numbers.push_back(std::to_integer<int>(byte));
    return numbers;
  };
  std::vector<float> x(32);
  x[0] = 6.0F;
  x[1] = -0.5F;
  x[3] = 4.0F;
  x[16] = 24.0F;
  x[31] = -4.0F;
  std::vector<int> expected(16 + 2);
  expected[0] = 0x97;
  expected[1] = 0x60;
  expected[8] = 0x07;
  expected[15] = 0xa0;
  expected[16] = 0x38;  // 1 in E4M3
  expected[17] = 0x48;  // 4
  EXPECT_EQ(bytes_of(QuantFormat::kF4Block16, x), expected);

  x.assign(64, 0.0F);
  x[1] = 448.0F;
  x[63] = -224.0F;
  expected.assign(64 + 2, 0);
  expected[1] = 0x7e;
  expected[63] = 0xfe;
  expected[64] = 127;
  expected[65] = 126;
  EXPECT_EQ(bytes_of(QuantFormat::kF8Block32, x), expected);
}

TEST(Quant, StoringAndReadingIsFakeQuantisation) {
  for (const QuantFormat format : kFormats) {
    std::vector<float> x = normal_values(std::size_t{64} * 64, 3);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0F, static_cast<int>(i / 64) - 32);
    EXPECT_TRUE(same_bits(stored_and_read(format, x), fake_quantized(format, x))) << static_cast<int>(format);
  }
}

TEST(Quant, PlainRowsAreRoundedToTheirType) {
  const std::vector<float> x = normal_values(21, 11);  // any number of channels
  for (const QuantFormat format : {QuantFormat::kF32, QuantFormat::kF16, QuantFormat::kBF16}) {
    std::vector<float> expected;
    for (const float value : x) {
      expected.push_back(format == QuantFormat::kF32   ? value
                         : format == QuantFormat::kF16 ? device::float_from_f16(device::f16_from_float(value))
                                                       : device::float_from_bf16(device::bf16_from_float(value)));
    }
    EXPECT_TRUE(same_bits(stored_and_read(format, x), expected)) << static_cast<int>(format);
    EXPECT_TRUE(same_bits(fake_quantized(format, x), expected)) << static_cast<int>(format);
    EXPECT_EQ(quant_row_bytes(format, 21), format == QuantFormat::kF32 ? 84 : 42);
  }
}

TEST(Quant, RowsInParallelEqualRowsAlone) {
  device::ThreadPool threads(3, false);
  device::Stream stream{.threads = &threads};
  constexpr std::int64_t kStride = 77;
  constexpr std::int64_t kCols = 64;
  for (const std::int64_t num_rows : {0, 1, 7, 1500}) {  // the last is several tasks
    const std::vector<float> x = normal_values(static_cast<std::size_t>(num_rows * kStride), 5);
    for (const QuantFormat format : kFormats) {
      std::vector<float> expected = x;
      for (std::int64_t row = 0; row < num_rows; ++row) {
        fake_quantize_row(format, &x[static_cast<std::size_t>(row * kStride)], kCols,
                          &expected[static_cast<std::size_t>(row * kStride)]);
      }
      std::vector<float> in_place = x;
      fake_quantize(stream, format, num_rows, kCols, in_place.data(), kStride, in_place.data(), kStride);
      EXPECT_TRUE(same_bits(in_place, expected));
      std::vector<float> dense(static_cast<std::size_t>(num_rows * kCols));
      fake_quantize(stream, format, num_rows, kCols, x.data(), kStride, dense.data(), kCols);
      for (std::int64_t row = 0; row < num_rows; ++row) {
        ASSERT_TRUE(same_bits(std::span(dense).subspan(static_cast<std::size_t>(row * kCols), kCols),
                              std::span(expected).subspan(static_cast<std::size_t>(row * kStride), kCols)));
      }
    }
  }
}

TEST(Quant, RoundsToBf16InPlace) {
  device::ThreadPool threads(3, false);
  device::Stream stream{.threads = &threads};
  for (const std::size_t count : {0, 1, 15, 17, 100'003}) {
    std::vector<float> x = normal_values(count + 1, 7);
    if (count > 1) x[1] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = device::float_from_bf16(device::bf16_from_float(expected[i]));
    }
    round_bf16(stream, x.data(), static_cast<std::int64_t>(count));
    EXPECT_TRUE(same_bits(x, expected)) << count;
  }
}

}  // namespace
}  // namespace thalweg::kernels
