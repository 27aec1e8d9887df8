#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device/float_types.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/mhc/mhc.h"

namespace thalweg::kernels::mhc {
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

float bf16(float value) { return device::float_from_bf16(device::bf16_from_float(value)); }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

struct Mixed {
  std::vector<float> pre, post, comb;
  bool operator==(const Mixed&) const = default;
};

/// Random weights of the size that trained ones have, and tokens to mix.
struct MixCase {
  MixCase(std::int32_t num_streams, std::int64_t hidden_size, std::int64_t tokens)
      : shape{.num_streams = num_streams, .hidden_size = hidden_size, .norm_epsilon = 1e-20F},
        num_tokens(tokens),
        fn(normal_values(num_rows() * num_cols(), 1.0F / std::sqrt(static_cast<float>(num_cols())), 1)),
        base(normal_values(num_rows(), 1.0F, 2)),
        x(normal_values(tokens * num_cols(), 3.0F, 3)) {}

  std::int64_t num_rows() const { return std::int64_t{shape.num_streams} * (shape.num_streams + 2); }
  std::int64_t num_cols() const { return shape.num_streams * shape.hidden_size; }
  MhcMix mix() const { return {.fn = fn.data(), .base = base.data(), .scale = scale.data()}; }

  Mixed run(device::Stream& stream, std::int64_t first_token, std::int64_t count) const {
    const std::size_t n = shape.num_streams;
    Mixed result{std::vector<float>(count * n), std::vector<float>(count * n), std::vector<float>(count * n * n)};
    mhc_mix(stream, shape, mix(), count, x.data() + first_token * num_cols(), result.pre.data(), result.post.data(),
            result.comb.data());
    return result;
  }

  /// Row `row` times the normalised token, in double.
  double product(std::int64_t token, std::int64_t row) const {
    double dot = 0.0;
    double squares = 0.0;
    for (std::int64_t k = 0; k < num_cols(); ++k) {
      const double value = x[token * num_cols() + k];
      dot += fn[row * num_cols() + k] * value;
      squares += value * value;
    }
    return dot / std::sqrt(squares / static_cast<double>(num_cols()) + 1e-20);
  }

  MhcShape shape;
  std::int64_t num_tokens;
  std::vector<float> fn, base, x;
  std::vector<float> scale{0.7F, 1.3F, 1.1F};
};

/// The formula of the specification, in double; logits [n][n].
std::vector<double> expected_comb(std::vector<double> b, int n, double epsilon, int num_steps) {
  for (int j = 0; j < n; ++j) {
    double sum = 0.0;
    for (int k = 0; k < n; ++k) sum += b[j * n + k] = std::exp(b[j * n + k]);
    for (int k = 0; k < n; ++k) b[j * n + k] = b[j * n + k] / sum + epsilon;
  }
  for (int step = 0; step < 2 * num_steps - 1; ++step) {
    const bool columns = step % 2 == 0;
    for (int a = 0; a < n; ++a) {
      double sum = 0.0;
      for (int i = 0; i < n; ++i) sum += columns ? b[i * n + a] : b[a * n + i];
      for (int i = 0; i < n; ++i) (columns ? b[i * n + a] : b[a * n + i]) /= sum + epsilon;
    }
  }
  return b;
}

class Mhc : public testing::Test {
 protected:
  device::Stream stream(CpuLevel level) { return {.cpu_level = level, .threads = &threads_}; }
  device::ThreadPool threads_{2, false};
};

TEST_F(Mhc, MixFollowsTheFormula) {
  for (const auto& [num_streams, hidden_size] : {std::pair{1, 5}, {2, 16}, {3, 21}, {4, 64}, {8, 33}}) {
    const MixCase mix(num_streams, hidden_size, 6);
    const int n = num_streams;
    for (const CpuLevel level : levels()) {
      device::Stream on = stream(level);
      const Mixed mixed = mix.run(on, 0, mix.num_tokens);
      for (std::int64_t token = 0; token < mix.num_tokens; ++token) {
        const auto logit = [&](int row, int part) { return mix.product(token, row) * mix.scale[part] + mix.base[row]; };
        for (int j = 0; j < n; ++j) {
          EXPECT_NEAR(mixed.pre[token * n + j], sigmoid(logit(j, 0)) + 1e-6, 2e-6);
          EXPECT_NEAR(mixed.post[token * n + j], 2.0 * sigmoid(logit(n + j, 1)), 4e-6);
        }
        std::vector<double> logits;
        for (int i = 0; i < n * n; ++i) logits.push_back(logit(2 * n + i, 2));
        const std::vector<double> comb = expected_comb(logits, n, 1e-6, 20);
        for (int i = 0; i < n * n; ++i) EXPECT_NEAR(mixed.comb[token * n * n + i], comb[i], 1e-5);
      }
    }
  }
}

/// Appendix A.4 of the specification. Every product is nothing, so that the logits are the base alone.
TEST_F(Mhc, SinkhornGivesThePublishedMatrix) {
  MixCase mix(4, 8, 1);
  mix.fn.assign(mix.fn.size(), 0.0F);
  mix.base = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 0, 1, 2, 1, 1, 0, 0, 0, 2, 0, 1};
  const std::vector<float> expected{0.0254831F, 0.0722968F, 0.4121467F, 0.4900724F, 0.5880802F, 0.0305596F,
                                    0.1742108F, 0.2071483F, 0.3123815F, 0.3260373F, 0.2515452F, 0.1100351F,
                                    0.0740542F, 0.5711053F, 0.1620963F, 0.1927432F};
  device::Stream on = stream(device::detect_cpu_level());
  const Mixed mixed = mix.run(on, 0, 1);
  EXPECT_THAT(mixed.comb, testing::Pointwise(testing::FloatNear(1e-6F), expected));
  EXPECT_THAT(mixed.post, testing::Each(1.0F));
  EXPECT_THAT(mixed.pre, testing::Each(0.5F + 1e-6F));
}

TEST_F(Mhc, MixOfATokenIsTheSameAloneAmongOthersAndOnEveryInstructionSet) {
  const MixCase mix(4, 75, 23);
  device::Stream reference = stream(CpuLevel::kReference);
  const Mixed together = mix.run(reference, 0, mix.num_tokens);
  for (const CpuLevel level : levels()) {
    device::Stream on = stream(level);
    EXPECT_EQ(mix.run(on, 0, mix.num_tokens), together);
    for (std::int64_t token = 0; token < mix.num_tokens; ++token) {
      const auto part = [&](const std::vector<float>& all, int size) {
        return std::vector<float>(all.begin() + token * size, all.begin() + (token + 1) * size);
      };
      const Mixed expected{part(together.pre, 4), part(together.post, 4), part(together.comb, 16)};
      EXPECT_EQ(mix.run(on, token, 1), expected) << token;
    }
  }
}

TEST_F(Mhc, MixOfZerosIsThatOfTheBase) {
  MixCase mix(4, 32, 1);
  mix.x.assign(mix.x.size(), 0.0F);
  device::Stream on = stream(device::detect_cpu_level());
  const Mixed mixed = mix.run(on, 0, 1);
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(mixed.pre[j], sigmoid(mix.base[j]) + 1e-6, 1e-6);
  for (const float value : mixed.comb) EXPECT_TRUE(std::isfinite(value));
}

TEST_F(Mhc, HeadMixIsASigmoidPerStream) {
  const MixCase mix(4, 40, 5);
  for (const CpuLevel level : levels()) {
    device::Stream on = stream(level);
    std::vector<float> pre(5 * 4);
    mhc_head_mix(on, mix.shape, mix.mix(), 5, mix.x.data(), pre.data());
    for (std::int64_t token = 0; token < 5; ++token) {
      for (int j = 0; j < 4; ++j) {
        const double logit = mix.product(token, j) * mix.scale[0] + mix.base[j];
        EXPECT_NEAR(pre[token * 4 + j], sigmoid(logit) + 1e-6, 2e-6);
      }
    }
  }
}

TEST_F(Mhc, CollapseAndExpandFollowTheirFormulas) {
  for (const auto& [n, hidden_size] : {std::pair{1, 3}, {2, 8}, {4, 37}, {8, 20}}) {
    const MhcShape shape{.num_streams = n, .hidden_size = hidden_size};
    const std::int64_t num_tokens = 9;
    const std::vector<float> x = normal_values(num_tokens * n * hidden_size, 1.0F, 4);
    const std::vector<float> sublayer = normal_values(num_tokens * hidden_size, 1.0F, 5);
    const std::vector<float> pre = normal_values(num_tokens * n, 1.0F, 6);
    const std::vector<float> comb = normal_values(num_tokens * n * n, 1.0F, 7);
    const auto at = [&](std::int64_t token, int j, std::int64_t c) {
      return double{x[(token * n + j) * hidden_size + c]};
    };
    for (const CpuLevel level : levels()) {
      device::Stream on = stream(level);
      std::vector<float> collapsed(num_tokens * hidden_size);
      mhc_collapse(on, shape, num_tokens, x.data(), pre.data(), false, collapsed.data());
      std::vector<float> expanded = x;
      mhc_expand(on, shape, num_tokens, sublayer.data(), pre.data(), comb.data(), false, expanded.data());
      for (std::int64_t token = 0; token < num_tokens; ++token) {
        for (std::int64_t c = 0; c < hidden_size; ++c) {
          double sum = 0.0;
          for (int j = 0; j < n; ++j) sum += pre[token * n + j] * at(token, j, c);
          ASSERT_NEAR(collapsed[token * hidden_size + c], sum, 1e-5);
          for (int k = 0; k < n; ++k) {
            double next = double{pre[token * n + k]} * sublayer[token * hidden_size + c];
            for (int j = 0; j < n; ++j) next += comb[(token * n + j) * n + k] * at(token, j, c);
            ASSERT_NEAR(expanded[(token * n + k) * hidden_size + c], next, 1e-5);
          }
        }
      }
      // Rounding is the last thing that happens.
      std::vector<float> rounded(collapsed.size());
      mhc_collapse(on, shape, num_tokens, x.data(), pre.data(), true, rounded.data());
      for (float& value : collapsed) value = bf16(value);
      EXPECT_EQ(rounded, collapsed);
      std::vector<float> rounded_streams = x;
      mhc_expand(on, shape, num_tokens, sublayer.data(), pre.data(), comb.data(), true, rounded_streams.data());
      for (float& value : expanded) value = bf16(value);
      EXPECT_EQ(rounded_streams, expanded);
    }
  }
}

TEST_F(Mhc, EveryInstructionSetGivesTheSameBits) {
  const MhcShape shape{.num_streams = 4, .hidden_size = 45};
  std::vector<float> x = normal_values(4 * 45, 1.0F, 8);
  x[3] = NAN;
  x[50] = INFINITY;
  const std::vector<float> sublayer = normal_values(45, 1.0F, 9);
  const std::vector<float> pre = normal_values(4, 1.0F, 10);
  const std::vector<float> comb = normal_values(16, 1.0F, 11);
  for (const bool rounds_bf16 : {false, true}) {
    std::vector<std::vector<std::uint32_t>> results;
    for (const CpuLevel level : levels()) {
      device::Stream on = stream(level);
      std::vector<float> out(45);
      mhc_collapse(on, shape, 1, x.data(), pre.data(), rounds_bf16, out.data());
      std::vector<float> streams = x;
      mhc_expand(on, shape, 1, sublayer.data(), pre.data(), comb.data(), rounds_bf16, streams.data());
      std::vector<std::uint32_t> bits;
      for (const float value : out) bits.push_back(std::isnan(value) ? 1 : std::bit_cast<std::uint32_t>(value));
      for (const float value : streams) bits.push_back(std::isnan(value) ? 1 : std::bit_cast<std::uint32_t>(value));
      results.push_back(bits);
    }
    EXPECT_THAT(results, testing::Each(results.front()));
  }
}

TEST_F(Mhc, EmptyBatchDoesNothing) {
  device::Stream on = stream(CpuLevel::kReference);
  mhc_mix(on, {}, {}, 0, nullptr, nullptr, nullptr, nullptr);
  mhc_head_mix(on, {}, {}, 0, nullptr, nullptr);
  mhc_collapse(on, {}, 0, nullptr, nullptr, true, nullptr);
  mhc_expand(on, {}, 0, nullptr, nullptr, nullptr, true, nullptr);
}

}  // namespace
}  // namespace thalweg::kernels::mhc
