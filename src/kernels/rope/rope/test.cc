#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <vector>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope/recorded_frequencies.h"

namespace thalweg::kernels::rotation {
namespace {

using device::CpuLevel;

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> result{CpuLevel::kReference};
  if (device::detect_cpu_level() >= CpuLevel::kAvx2) result.push_back(CpuLevel::kAvx2);
  return result;
}

TEST(RopeFrequencies, AgreeWithTransformers) {
  for (const RecordedFrequencies& recorded : recorded_frequencies()) {
    SCOPED_TRACE(recorded.name);
    const RopeFrequencies got = recorded.make();
    EXPECT_FLOAT_EQ(got.magnitude, recorded.magnitude);
    ASSERT_EQ(got.inverse.size(), recorded.inverse.size());
    for (std::size_t i = 0; i < got.inverse.size(); ++i) {
      // Recorded ones were computed in fp32 throughout.
      EXPECT_NEAR(got.inverse[i], recorded.inverse[i], 2e-6 * recorded.inverse[i]) << i;
    }
  }
}

TEST(RopeTable, HoldsCosinesThenSines) {
  device::ThreadPool threads(2, false);
  device::Stream stream{.threads = &threads};
  const RopeFrequencies frequencies{{1.0F, 0.25F, 0.001F}, 1.5F};
  std::vector<std::int32_t> positions;
  for (std::int32_t i = 0; i < 400; ++i) positions.push_back(i * 321);
  std::vector<float> table(positions.size() * 6);
  rope_table(stream, frequencies, positions, table.data());
  for (std::size_t token = 0; token < positions.size(); ++token) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle = double{frequencies.inverse[i]} * positions[token];
      EXPECT_NEAR(table[token * 6 + i], 1.5 * std::cos(angle), 1e-6);
      EXPECT_NEAR(table[token * 6 + 3 + i], 1.5 * std::sin(angle), 1e-6);
    }
  }
}

struct Shape {
  std::int64_t num_tokens;
  std::int32_t num_heads, head_dim, rope_dim;
};

// As multiplication of complex numbers, and nothing else touched.
TEST(Rope, RotatesPairs) {
  device::ThreadPool threads(2, false);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Shape& shape : {Shape{1, 1, 2, 2}, Shape{1, 9, 64, 64}, Shape{3, 3, 80, 20}, Shape{5, 4, 256, 256},
                             Shape{2, 2, 96, 72}, Shape{300, 9, 64, 64}, Shape{4, 2, 64, 0}, Shape{2, 3, 24, 14}}) {
    const std::int64_t stride = shape.num_heads * shape.head_dim + 5;
    const std::int32_t num_pairs = shape.rope_dim / 2;
    std::vector<float> table(shape.num_tokens * shape.rope_dim);
    std::vector<float> input(shape.num_tokens * stride);
    for (float& value : table) value = normal(random);
    for (float& value : input) value = normal(random);
    for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kInterleaved}) {
      std::vector<float> expected = input;
      for (std::int64_t token = 0; token < shape.num_tokens; ++token) {
        for (std::int32_t head = 0; head < shape.num_heads; ++head) {
          for (std::int32_t i = 0; i < num_pairs; ++i) {
            float* x = expected.data() + token * stride + head * shape.head_dim;
            float& a = pairing == RopePairing::kHalves ? x[i] : x[2 * i];
            float& b = pairing == RopePairing::kHalves ? x[i + num_pairs] : x[2 * i + 1];
            const float* cos = table.data() + token * shape.rope_dim;
            const std::complex<double> turned =
                std::complex<double>(a, b) * std::complex<double>(cos[i], cos[num_pairs + i]);
            a = static_cast<float>(turned.real());
            b = static_cast<float>(turned.imag());
          }
        }
      }
      for (const CpuLevel level : levels()) {
        device::Stream stream{.cpu_level = level, .threads = &threads};
        std::vector<float> got = input;
        rope(stream, {.x = got.data(),
                      .x_stride = stride,
                      .num_tokens = shape.num_tokens,
                      .num_heads = shape.num_heads,
                      .head_dim = shape.head_dim,
                      .rope_dim = shape.rope_dim,
                      .pairing = pairing,
                      .cos_sin = table.data()});
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 4e-6) << i;
      }
    }
  }
}

TEST(Rope, EmptyBatchDoesNothing) {
  device::Stream stream;
  rope_table(stream, rope_default(64, 1e4), {}, nullptr);
  rope(stream, {.num_heads = 1, .head_dim = 64, .rope_dim = 64});
}

}  // namespace
}  // namespace thalweg::kernels::rotation
