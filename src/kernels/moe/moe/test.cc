#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/moe/moe.h"

namespace thalweg::kernels::experts {
namespace {

using device::CpuLevel;

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Choice choose(device::Stream& stream, const std::vector<float>& logits, std::int32_t num_experts, std::int32_t top_k,
              bool normalize) {
  const std::int64_t num_tokens = static_cast<std::int64_t>(logits.size()) / num_experts;
  Choice result{std::vector<std::int32_t>(num_tokens * top_k), std::vector<float>(num_tokens * top_k)};
  moe_softmax_gate(stream, {.logits = logits.data(),
                            .num_tokens = num_tokens,
                            .num_experts = num_experts,
                            .top_k = top_k,
                            .normalize = normalize,
                            .expert_ids = result.ids.data(),
                            .weights = result.weights.data()});
  return result;
}

std::vector<float> normal_values(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

class Moe : public testing::Test {
 protected:
  device::ThreadPool threads_{2, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
};

TEST_F(Moe, GateTakesTheMostLikely) {
  for (const std::int32_t num_experts : {1, 4, 60, 128}) {
    for (const std::int32_t top_k : {1, 2, 8}) {
      if (top_k > num_experts) continue;
      for (const std::int64_t num_tokens : {1, 200}) {
        const std::vector<float> logits = normal_values(num_tokens * num_experts, 5);
        for (const bool normalize : {false, true}) {
          const Choice choice = choose(stream_, logits, num_experts, top_k, normalize);
          for (std::int64_t token = 0; token < num_tokens; ++token) {
            const float* row = logits.data() + token * num_experts;
            std::vector<std::int32_t> order(num_experts);
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
            double sum = 0.0;
            for (std::int32_t i = 0; i < (normalize ? top_k : num_experts); ++i) sum += std::exp(double{row[order[i]]});
            for (std::int32_t rank = 0; rank < top_k; ++rank) {
              EXPECT_EQ(choice.ids[token * top_k + rank], order[rank]);
              EXPECT_NEAR(choice.weights[token * top_k + rank], std::exp(double{row[order[rank]]}) / sum, 1e-6);
            }
          }
        }
      }
    }
  }
}

TEST_F(Moe, GateTiesGoToTheLowerId) {
  const Choice choice = choose(stream_, {1.0F, 3.0F, 3.0F, 1.0F, 3.0F}, 5, 4, true);
  EXPECT_EQ(choice.ids, (std::vector<std::int32_t>{1, 2, 4, 0}));
}

TEST_F(Moe, GateOfNotANumberChoosesExpertsThatExist) {
  for (const std::vector<float>& logits :
       {std::vector<float>{NAN, NAN, NAN, NAN}, std::vector<float>{0.0F, NAN, 1.0F, NAN},
        std::vector<float>{INFINITY, INFINITY, 0.0F, 0.0F}, std::vector<float>(4, -INFINITY)}) {
    const Choice choice = choose(stream_, logits, 4, 3, true);
    const std::set<std::int32_t> ids(choice.ids.begin(), choice.ids.end());
    EXPECT_EQ(ids.size(), 3U);
    EXPECT_GE(*ids.begin(), 0);
    EXPECT_LT(*ids.rbegin(), 4);
  }
}

class MoeExperts : public Moe {
 protected:
  static constexpr std::int64_t kHidden = 32;
  static constexpr std::int64_t kInner = 48;
  static constexpr std::int32_t kExperts = 5;

  void SetUp() override {
    for (std::int32_t expert = 0; expert < kExperts; ++expert) {
      gate_.push_back(normal_values(kInner * kHidden, 100 + expert));
      up_.push_back(normal_values(kInner * kHidden, 200 + expert));
      down_.push_back(normal_values(kHidden * kInner, 300 + expert));
      const std::vector<StoredMatrix> gate_up{stored(gate_.back(), kInner, kHidden),
                                              stored(up_.back(), kInner, kHidden)};
      gate_up_weights_.push_back(pack(gate_up, RowOrder::kInterleave));
      down_weights_.push_back(pack({stored(down_.back(), kHidden, kInner)}, RowOrder::kConcatenate));
    }
  }

  static StoredMatrix stored(const std::vector<float>& values, std::int64_t num_rows, std::int64_t num_cols) {
    return {.data = reinterpret_cast<const std::byte*>(values.data()), .num_rows = num_rows, .num_cols = num_cols};
  }

  LinearWeight pack(const std::vector<StoredMatrix>& parts, RowOrder order) {
    Result<LinearWeight> weight = LinearWeight::pack(stream_, parts, order);
    EXPECT_TRUE(weight.has_value());
    return std::move(*weight);
  }

  void run(const float* x, std::int64_t num_tokens, std::int32_t top_k, const std::int32_t* ids, const float* weights,
           float* out) {
    moe_experts(stream_, {.x = x,
                          .num_tokens = num_tokens,
                          .top_k = top_k,
                          .expert_ids = ids,
                          .weights = weights,
                          .gate_up = gate_up_weights_,
                          .down = down_weights_,
                          .out = out});
  }

  std::vector<std::vector<float>> gate_, up_, down_;
  std::vector<LinearWeight> gate_up_weights_, down_weights_;
};

TEST_F(MoeExperts, AddTheWeightedSum) {
  const std::int64_t num_tokens = 17;
  const std::int32_t top_k = 2;
  const std::vector<float> x = normal_values(num_tokens * kHidden, 1);
  const std::vector<float> before = normal_values(num_tokens * kHidden, 2);
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    ids.push_back(static_cast<std::int32_t>(token % 4));  // expert 4 has no tokens
    ids.push_back(static_cast<std::int32_t>((token + 1) % 4));
  }
  const std::vector<float> weights = normal_values(num_tokens * top_k, 3);
  std::vector<float> out = before;
  run(x.data(), num_tokens, top_k, ids.data(), weights.data(), out.data());

  for (std::int64_t token = 0; token < num_tokens; ++token) {
    std::vector<double> expected(before.begin() + token * kHidden, before.begin() + (token + 1) * kHidden);
    for (std::int32_t rank = 0; rank < top_k; ++rank) {
      const std::int32_t expert = ids[token * top_k + rank];
      const float* row = x.data() + token * kHidden;
      for (std::int64_t inner = 0; inner < kInner; ++inner) {
        const double gate = std::inner_product(row, row + kHidden, gate_[expert].data() + inner * kHidden, 0.0);
        const double up = std::inner_product(row, row + kHidden, up_[expert].data() + inner * kHidden, 0.0);
        const double activated = gate / (1.0 + std::exp(-gate)) * up;
        for (std::int64_t i = 0; i < kHidden; ++i) {
          expected[i] += weights[token * top_k + rank] * activated * down_[expert][i * kInner + inner];
        }
      }
    }
    for (std::int64_t i = 0; i < kHidden; ++i) {
      EXPECT_NEAR(out[token * kHidden + i], expected[i], 2e-5 * (10.0 + std::abs(expected[i])));
    }
  }
}

TEST_F(MoeExperts, ABatchGivesTheBitsOfEachTokenAlone) {
  const std::int64_t num_tokens = 64;
  const std::int32_t top_k = 3;
  const std::vector<float> x = normal_values(num_tokens * kHidden, 11);
  const Choice choice = choose(stream_, normal_values(num_tokens * kExperts, 12), kExperts, top_k, true);
  std::vector<float> together(num_tokens * kHidden);
  run(x.data(), num_tokens, top_k, choice.ids.data(), choice.weights.data(), together.data());
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    std::vector<float> alone(kHidden);
    run(x.data() + token * kHidden, 1, top_k, choice.ids.data() + token * top_k, choice.weights.data() + token * top_k,
        alone.data());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + token * kHidden)) << token;
  }
}

TEST_F(MoeExperts, EmptyBatchDoesNothing) {
  moe_softmax_gate(stream_, {.num_experts = 4, .top_k = 1});
  moe_experts(stream_, {.top_k = 1});
}

}  // namespace
}  // namespace thalweg::kernels::experts
