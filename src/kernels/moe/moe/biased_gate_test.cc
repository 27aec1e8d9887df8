#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/moe/moe.h"

namespace thalweg::kernels::experts {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

class BiasedGate : public testing::Test {
 protected:
  /// `params` without its outputs.
  Choice choose(const std::vector<float>& logits, BiasedGateParams params) {
    params.logits = logits.data();
    params.num_tokens = static_cast<std::int64_t>(logits.size()) / params.num_experts;
    Choice choice{std::vector<std::int32_t>(params.num_tokens * params.top_k),
                  std::vector<float>(params.num_tokens * params.top_k)};
    params.expert_ids = choice.ids.data();
    params.weights = choice.weights.data();
    moe_biased_gate(stream_, params);
    return choice;
  }

  device::ThreadPool threads_{2, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
};

std::vector<float> normal_values(std::size_t size, float deviation, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

double expected_score(GateScoring scoring, double logit) {
  return scoring == GateScoring::kSigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::sqrt(std::log1p(std::exp(logit)));
}

/// The router in double, an expert at a time: the best that is not taken and lies in a group that is open.
Choice expected_choice(const float* logits, const BiasedGateParams& params) {
  const std::int32_t group_size = params.num_experts / params.num_groups;
  std::vector<double> scores;
  std::vector<double> biased;
  for (std::int32_t expert = 0; expert < params.num_experts; ++expert) {
    scores.push_back(expected_score(params.scoring, logits[expert]));
    biased.push_back(scores.back() + (params.bias == nullptr ? 0.0 : params.bias[expert]));
  }
  std::vector<double> group_values;
  for (std::int32_t group = 0; group < params.num_groups; ++group) {
    std::vector<double> sorted(biased.begin() + group * group_size, biased.begin() + (group + 1) * group_size);
    std::ranges::sort(sorted, std::greater());
    group_values.push_back(sorted[0] + (group_size > 1 ? sorted[1] : 0.0));
  }
  std::set<std::int32_t> open;
  for (std::int32_t i = 0; i < params.top_groups; ++i) {
    const auto best = std::ranges::max_element(group_values);
    open.insert(static_cast<std::int32_t>(best - group_values.begin()));
    *best = -kInfinity;
  }
  Choice choice;
  double sum = 0.0;
  std::vector<double> weights;
  for (std::int32_t rank = 0; rank < params.top_k; ++rank) {
    std::int32_t best = -1;
    for (std::int32_t expert = 0; expert < params.num_experts; ++expert) {
      if (!open.contains(expert / group_size) || std::ranges::find(choice.ids, expert) != choice.ids.end()) continue;
      if (best < 0 || biased[expert] > biased[best]) best = expert;
    }
    choice.ids.push_back(best);
    weights.push_back(scores[best]);
    sum += scores[best];
  }
  for (const double weight : weights) {
    choice.weights.push_back(static_cast<float>((params.normalize ? weight / sum : weight) * params.scale));
  }
  return choice;
}

TEST_F(BiasedGate, FollowsTheFormula) {
  struct Router {
    std::int32_t num_experts, top_k, num_groups, top_groups;
  };
  // DeepSeek-V4.1; V3; small ones, the last with groups of one.
  for (const Router& router : {Router{384, 6, 1, 1}, {256, 8, 8, 4}, {8, 8, 1, 1}, {12, 2, 4, 1}, {6, 2, 6, 3}}) {
    for (const GateScoring scoring : {GateScoring::kSigmoid, GateScoring::kSqrtSoftplus}) {
      for (const bool normalize : {false, true}) {
        for (const bool with_bias : {false, true}) {
          const std::vector<float> bias = normal_values(router.num_experts, 0.3F, 1);
          const BiasedGateParams params{.num_experts = router.num_experts,
                                        .top_k = router.top_k,
                                        .scoring = scoring,
                                        .bias = with_bias ? bias.data() : nullptr,
                                        .num_groups = router.num_groups,
                                        .top_groups = router.top_groups,
                                        .normalize = normalize,
                                        .scale = 1.5F};
          const std::int64_t num_tokens = 7;
          const std::vector<float> logits = normal_values(num_tokens * router.num_experts, 2.0F, 2);
          const Choice choice = choose(logits, params);
          for (std::int64_t token = 0; token < num_tokens; ++token) {
            const Choice expected = expected_choice(logits.data() + token * router.num_experts, params);
            for (std::int32_t rank = 0; rank < router.top_k; ++rank) {
              ASSERT_EQ(choice.ids[token * router.top_k + rank], expected.ids[rank]);
              ASSERT_NEAR(choice.weights[token * router.top_k + rank], expected.weights[rank], 3e-6);
            }
          }
        }
      }
    }
  }
}

TEST_F(BiasedGate, TheBiasSelectsButDoesNotWeigh) {
  const std::vector<float> bias{0.0F, 0.0F, 0.0F, 10.0F};
  const Choice choice =
      choose({5.0F, 4.0F, 3.0F, -2.0F}, {.num_experts = 4, .top_k = 2, .bias = bias.data(), .normalize = false});
  EXPECT_THAT(choice.ids, ElementsAre(3, 0));
  EXPECT_NEAR(choice.weights[0], expected_score(GateScoring::kSigmoid, -2.0), 1e-6);
  EXPECT_NEAR(choice.weights[1], expected_score(GateScoring::kSigmoid, 5.0), 1e-6);
}

TEST_F(BiasedGate, TiesGoToTheLowerId) {
  EXPECT_THAT(choose({1, 3, 3, 1, 3}, {.num_experts = 5, .top_k = 4}).ids, ElementsAre(1, 2, 4, 0));
  // Two groups alike: the first.
  EXPECT_THAT(choose({1, 2, 2, 1, 0, 0}, {.num_experts = 6, .top_k = 2, .num_groups = 3}).ids, ElementsAre(1, 0));
}

TEST_F(BiasedGate, AGroupIsAsGoodAsItsTwoBest) {
  // The best expert of all is alone in its group.
  const Choice choice = choose({4, -9, -9, 3, 3, -9}, {.num_experts = 6, .top_k = 2, .num_groups = 2});
  EXPECT_THAT(choice.ids, ElementsAre(3, 4));
}

TEST_F(BiasedGate, LargeLogitsStayFinite) {
  const Choice choice =
      choose({1000.0F, 900.0F, -1000.0F, 25.0F},
             {.num_experts = 4, .top_k = 3, .scoring = GateScoring::kSqrtSoftplus, .normalize = false});
  EXPECT_THAT(choice.ids, ElementsAre(0, 1, 3));
  EXPECT_THAT(choice.weights, ElementsAre(std::sqrt(1000.0F), 30.0F, 5.0F));
}

TEST_F(BiasedGate, NothingChosenHasWeightZeroNotNaN) {
  const Choice choice = choose({-1000.0F, -1000.0F}, {.num_experts = 2, .top_k = 2});
  EXPECT_THAT(choice.weights, ElementsAre(0.0F, 0.0F));
}

TEST_F(BiasedGate, NotANumberIsChosenLast) {
  EXPECT_THAT(choose({NAN, 1.0F, NAN, 2.0F}, {.num_experts = 4, .top_k = 3}).ids, ElementsAre(3, 1, 0));
  for (const std::vector<float>& logits :
       {std::vector<float>(6, NAN), std::vector<float>{kInfinity, -kInfinity, NAN, kInfinity, NAN, 0.0F}}) {
    for (const GateScoring scoring : {GateScoring::kSigmoid, GateScoring::kSqrtSoftplus}) {
      const std::vector<float> bias{0.0F, kInfinity, -kInfinity, -kInfinity, NAN, 0.0F};
      const Choice choice = choose(
          logits,
          {.num_experts = 6, .top_k = 3, .scoring = scoring, .bias = bias.data(), .num_groups = 3, .top_groups = 2});
      const std::set<std::int32_t> ids(choice.ids.begin(), choice.ids.end());
      EXPECT_EQ(ids.size(), 3U);
      EXPECT_GE(*ids.begin(), 0);
      EXPECT_LT(*ids.rbegin(), 6);
    }
  }
}

TEST_F(BiasedGate, ATokenChoosesTheSameAloneAndAmongOthers) {
  const std::int64_t num_tokens = 40;
  const BiasedGateParams params{.num_experts = 48, .top_k = 6, .scoring = GateScoring::kSqrtSoftplus};
  const std::vector<float> logits = normal_values(num_tokens * 48, 1.0F, 3);
  const Choice together = choose(logits, params);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    const Choice alone = choose({logits.begin() + token * 48, logits.begin() + (token + 1) * 48}, params);
    EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), together.ids.begin() + token * 6));
    EXPECT_TRUE(std::equal(alone.weights.begin(), alone.weights.end(), together.weights.begin() + token * 6));
  }
  moe_biased_gate(stream_, {});  // nobody: nothing happens
}

}  // namespace
}  // namespace thalweg::kernels::experts
