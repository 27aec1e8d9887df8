#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device/float_types.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/moe/moe.h"
#include "kernels/quant/quant.h"

namespace thalweg::kernels::experts {
namespace {

constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kInner = 64;
constexpr std::int32_t kExperts = 5;
constexpr std::int32_t kTopK = 3;

std::vector<float> normal_values(std::size_t size, float deviation, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

class ClampedExperts : public testing::Test {
 protected:
  void SetUp() override {
    for (std::int32_t expert = 0; expert < kExperts; ++expert) {
      gate_.push_back(normal_values(kInner * kHidden, 0.5F, 100 + expert));
      up_.push_back(normal_values(kInner * kHidden, 0.5F, 200 + expert));
      down_.push_back(normal_values(kHidden * kInner, 0.5F, 300 + expert));
      gate_up_weights_.push_back(pack({stored(gate_.back(), kInner, kHidden), stored(up_.back(), kInner, kHidden)}));
      down_weights_.push_back(pack({stored(down_.back(), kHidden, kInner)}));
    }
    // Every token has kTopK experts that differ; expert 4 has no tokens.
    for (std::int64_t token = 0; token < num_tokens_; ++token) {
      for (std::int32_t rank = 0; rank < kTopK; ++rank) ids_.push_back(static_cast<std::int32_t>((token + rank) % 4));
    }
  }

  static StoredMatrix stored(const std::vector<float>& values, std::int64_t num_rows, std::int64_t num_cols) {
    return {.data = reinterpret_cast<const std::byte*>(values.data()), .num_rows = num_rows, .num_cols = num_cols};
  }

  LinearWeight pack(const std::vector<StoredMatrix>& parts) {
    Result<LinearWeight> weight = LinearWeight::pack(stream_, parts, RowOrder::kInterleave);
    EXPECT_TRUE(weight.has_value());
    return std::move(*weight);
  }

  ClampedExpertsParams params() const {
    return {.num_tokens = num_tokens_,
            .top_k = kTopK,
            .expert_ids = ids_.data(),
            .weights = weights_.data(),
            .gate_up = gate_up_weights_,
            .down = down_weights_};
  }

  /// What `params` makes of tokens `x`, beginning with zeros.
  std::vector<float> run(ClampedExpertsParams params, const std::vector<float>& x) {
    std::vector<float> out(params.num_tokens * kHidden);
    params.x = x.data();
    params.out = out.data();
    moe_clamped_experts(stream_, params);
    return out;
  }

  /// The formula of one token and expert, with `weight` where the parameters want it. The sums are those of linear's
  /// contract, because a last bit can become another FP8 code.
  std::vector<float> expected_result(const ClampedExpertsParams& params, const float* x, std::int32_t expert,
                                     float weight) const {
    const auto rounded = [&](float value) {
      return params.rounds_bf16 ? device::float_from_bf16(device::bf16_from_float(value)) : value;
    };
    const auto product = [](const float* row, const float* vector, std::int64_t size) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < size; ++i) sum = std::fma(row[i], vector[i], sum);
      return sum;
    };
    std::vector<float> activation;
    for (std::int64_t i = 0; i < kInner; ++i) {
      float gate = rounded(product(gate_[expert].data() + i * kHidden, x, kHidden));
      float up = rounded(product(up_[expert].data() + i * kHidden, x, kHidden));
      if (params.limit > 0.0F) {
        gate = gate > params.limit ? params.limit : gate;
        up = std::fabs(up) > params.limit ? std::copysign(params.limit, up) : up;
      }
      const float silu = gate / (1.0F + std::exp(-gate));
      activation.push_back(rounded(params.weighs_before_down ? silu * up * weight : silu * up));
    }
    if (params.quantizes_activations) {
      fake_quantize_row(QuantFormat::kF8Block32, activation.data(), kInner, activation.data());
    }
    std::vector<float> result;
    for (std::int64_t i = 0; i < kHidden; ++i) {
      const float y = rounded(product(down_[expert].data() + i * kInner, activation.data(), kInner));
      result.push_back(params.weighs_before_down ? y : y * weight);
    }
    return result;
  }

  device::ThreadPool threads_{2, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  std::int64_t num_tokens_ = 13;
  std::vector<float> x_ = normal_values(num_tokens_ * kHidden, 1.0F, 1);
  std::vector<float> weights_ = normal_values(num_tokens_ * kTopK, 1.0F, 2);
  std::vector<std::int32_t> ids_;
  std::vector<std::vector<float>> gate_, up_, down_;
  std::vector<LinearWeight> gate_up_weights_, down_weights_;
};

TEST_F(ClampedExperts, FollowTheFormulaInEveryMode) {
  for (int mode = 0; mode < 16; ++mode) {
    ClampedExpertsParams all = params();
    all.limit = (mode & 1) != 0 ? 1.5F : 0.0F;
    all.weighs_before_down = (mode & 2) != 0;
    all.rounds_bf16 = (mode & 4) != 0;
    all.quantizes_activations = (mode & 8) != 0;
    const std::vector<float> out = run(all, x_);
    for (std::int64_t token = 0; token < num_tokens_; ++token) {
      std::vector<float> expected(kHidden);
      for (std::int64_t pair = token * kTopK; pair < (token + 1) * kTopK; ++pair) {
        const std::vector<float> result = expected_result(all, x_.data() + token * kHidden, ids_[pair], weights_[pair]);
        for (std::int64_t i = 0; i < kHidden; ++i) expected[i] += result[i];
      }
      for (std::int64_t i = 0; i < kHidden; ++i) {
        ASSERT_FLOAT_EQ(out[token * kHidden + i], expected[i]) << "mode " << mode << ", token " << token;
      }
    }
  }
}

TEST_F(ClampedExperts, EachModeIsAnother) {
  ClampedExpertsParams all = params();
  const std::vector<float> plain = run(all, x_);
  all.limit = 1.5F;
  EXPECT_NE(run(all, x_), plain);
  all.limit = 1e6F;
  EXPECT_EQ(run(all, x_), plain);
  all.rounds_bf16 = true;
  const std::vector<float> rounded = run(all, x_);
  EXPECT_NE(rounded, plain);
  all.weighs_before_down = false;
  EXPECT_NE(run(all, x_), rounded);
}

TEST_F(ClampedExperts, TheClampLetsNotANumberThrough) {
  ClampedExpertsParams all = params();
  all.limit = 1.5F;
  x_[0] = NAN;
  const std::vector<float> out = run(all, x_);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_FALSE(std::isnan(out[kHidden]));
}

TEST_F(ClampedExperts, AddToWhatIsThere) {
  ClampedExpertsParams all = params();
  all.x = x_.data();
  std::vector<float> out(num_tokens_ * kHidden, 100.0F);
  all.out = out.data();
  moe_clamped_experts(stream_, all);
  const std::vector<float> alone = run(all, x_);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], 100.0F + alone[i], 1e-4);
}

TEST_F(ClampedExperts, WithoutIdsEverybodyPassesThroughTheFirst) {
  ClampedExpertsParams shared = params();
  shared.top_k = 1;
  shared.expert_ids = nullptr;
  shared.weights = nullptr;
  const std::vector<float> out = run(shared, x_);

  const std::vector<std::int32_t> zeros(num_tokens_);
  const std::vector<float> ones(num_tokens_, 1.0F);
  shared.expert_ids = zeros.data();
  shared.weights = ones.data();
  EXPECT_EQ(run(shared, x_), out);
}

TEST_F(ClampedExperts, ABatchGivesTheBitsOfEachTokenAlone) {
  ClampedExpertsParams all = params();
  all.limit = 1.5F;
  all.rounds_bf16 = true;
  all.quantizes_activations = true;
  const std::vector<float> together = run(all, x_);
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    ClampedExpertsParams one = all;
    one.num_tokens = 1;
    one.expert_ids += token * kTopK;
    one.weights += token * kTopK;
    const std::vector<float> alone = run(one, {x_.begin() + token * kHidden, x_.begin() + (token + 1) * kHidden});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + token * kHidden)) << token;
  }
}

TEST_F(ClampedExperts, EmptyBatchDoesNothing) { moe_clamped_experts(stream_, {.top_k = 1}); }

}  // namespace
}  // namespace thalweg::kernels::experts
