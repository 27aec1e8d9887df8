#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/norm/rms_norm.h"

namespace thalweg::kernels::norm {
namespace {

using device::CpuLevel;

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> result{CpuLevel::kReference};
  if (device::detect_cpu_level() >= CpuLevel::kAvx2) result.push_back(CpuLevel::kAvx2);
  return result;
}

std::vector<float> normal_values(std::size_t size, float deviation, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

/// In double, written as the formula.
std::vector<float> expected_row(const float* x, std::int64_t num_cols, const float* weight, double epsilon) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < num_cols; ++i) squares += std::pow(double{x[i]}, 2);
  std::vector<float> result;
  for (std::int64_t i = 0; i < num_cols; ++i) {
    const double factor = weight == nullptr ? 1.0 : weight[i];
    result.push_back(static_cast<float>(x[i] / std::sqrt(squares / static_cast<double>(num_cols) + epsilon) * factor));
  }
  return result;
}

TEST(RmsNorm, EveryVersionFollowsTheFormula) {
  device::ThreadPool threads(2, false);
  for (const std::int64_t num_cols : {1, 2, 7, 8, 31, 32, 33, 64, 100, 576, 577, 2048, 4099}) {
    for (const std::int64_t num_rows : {1, 3, 130}) {
      for (const float deviation : {1e-3F, 1.0F, 1e4F}) {
        for (const bool weighted : {false, true}) {
          const std::int64_t x_stride = num_cols + 3;
          const std::int64_t out_stride = num_cols + 5;
          std::vector<float> x = normal_values(num_rows * x_stride, deviation, 1);
          for (std::int64_t row = 0; row < num_rows; ++row) {
            for (std::int64_t i = num_cols; i < x_stride; ++i) x[row * x_stride + i] = NAN;
          }
          const std::vector<float> weight = normal_values(num_cols, 1.0F, 2);
          for (const CpuLevel level : levels()) {
            device::Stream stream{.cpu_level = level, .threads = &threads};
            std::vector<float> out(num_rows * out_stride, -7.0F);
            rms_norm(stream, {.x = x.data(),
                              .x_stride = x_stride,
                              .num_rows = num_rows,
                              .num_cols = num_cols,
                              .weight = weighted ? weight.data() : nullptr,
                              .epsilon = 1e-5F,
                              .out = out.data(),
                              .out_stride = out_stride});
            for (std::int64_t row = 0; row < num_rows; ++row) {
              const std::vector<float> expected =
                  expected_row(x.data() + row * x_stride, num_cols, weighted ? weight.data() : nullptr, 1e-5F);
              for (std::int64_t i = 0; i < num_cols; ++i) {
                ASSERT_NEAR(out[row * out_stride + i], expected[i], 1e-6 * (1.0 + std::abs(expected[i])));
              }
              for (std::int64_t i = num_cols; i < out_stride; ++i) ASSERT_EQ(out[row * out_stride + i], -7.0F);
            }
          }
        }
      }
    }
  }
}

TEST(RmsNorm, InPlaceAndInABatchGiveTheSameBits) {
  device::ThreadPool threads(3, false);
  const std::int64_t num_rows = 200;
  const std::int64_t num_cols = 576;
  const std::vector<float> x = normal_values(num_rows * num_cols, 1.0F, 4);
  for (const CpuLevel level : levels()) {
    device::Stream stream{.cpu_level = level, .threads = &threads};
    std::vector<float> together = x;
    rms_norm(stream, {together.data(), num_cols, num_rows, num_cols, nullptr, 1e-6F, together.data(), num_cols});
    for (std::int64_t row = 0; row < num_rows; ++row) {
      std::vector<float> alone(num_cols + 1);
      // Another alignment, too.
      rms_norm(stream, {x.data() + row * num_cols, num_cols, 1, num_cols, nullptr, 1e-6F, alone.data() + 1, num_cols});
      ASSERT_TRUE(std::equal(alone.begin() + 1, alone.end(), together.begin() + row * num_cols));
    }
  }
}

TEST(HeadRmsNorm, NormalisesEachHeadAndNothingElse) {
  device::ThreadPool threads(2, false);
  for (const std::int32_t head_dim : {64, 128, 256, 40}) {
    for (const std::int64_t num_tokens : {1, 2, 150}) {
      const std::int32_t num_heads = 5;
      const std::int64_t stride = num_heads * head_dim + 9;
      const std::vector<float> input = normal_values(num_tokens * stride, 2.0F, 6);
      const std::vector<float> weight = normal_values(head_dim, 1.0F, 7);
      std::vector<float> expected = input;
      for (std::int64_t token = 0; token < num_tokens; ++token) {
        for (std::int32_t head = 0; head < num_heads; ++head) {
          const std::int64_t offset = token * stride + head * head_dim;
          const std::vector<float> row = expected_row(input.data() + offset, head_dim, weight.data(), 1e-6F);
          std::copy(row.begin(), row.end(), expected.begin() + offset);
        }
      }
      for (const CpuLevel level : levels()) {
        device::Stream stream{.cpu_level = level, .threads = &threads};
        std::vector<float> got = input;
        head_rms_norm(stream, got.data(), stride, num_tokens, num_heads, head_dim, weight.data(), 1e-6F);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], expected[i], 1e-6 * (1.0 + std::abs(expected[i])));
        }
      }
    }
  }
}

TEST(RmsNorm, EmptyBatchDoesNothing) {
  device::Stream stream;
  rms_norm(stream, {});
  head_rms_norm(stream, nullptr, 64, 0, 1, 64, nullptr, 1e-6F);
}

}  // namespace
}  // namespace thalweg::kernels::norm
