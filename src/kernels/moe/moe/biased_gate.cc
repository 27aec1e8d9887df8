#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/for_each_row.h"
#include "kernels/moe/moe.h"

namespace thalweg::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

float score_of(GateScoring scoring, float logit) {
  if (scoring == GateScoring::kSigmoid) return 1.0F / (1.0F + std::exp(-logit));
  constexpr float kLinearFrom = 20.0F;  // from here on fp32 cannot tell softplus from its argument
  return std::sqrt(logit > kLinearFrom ? logit : std::log1p(std::exp(logit)));
}

/// NaN has no place in an order: it comes last.
float rankable(float value) { return std::isnan(value) ? kLowest : value; }

/// Puts the indices of the `count` largest values first, largest first, ties by index.
void partial_sort_by(const std::vector<float>& values, std::int32_t count, std::vector<std::int32_t>& indices) {
  std::partial_sort(indices.begin(), indices.begin() + count, indices.end(), [&](std::int32_t a, std::int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
}

/// A group counts as much as its two best experts.
float group_value(const float* values, std::int32_t group_size) {
  float best = kLowest;
  float second = kLowest;
  for (std::int32_t i = 0; i < group_size; ++i) {
    second = std::max(second, std::min(best, values[i]));
    best = std::max(best, values[i]);
  }
  return group_size == 1 ? best : rankable(best + second);
}

/// Experts of the groups that may be chosen from.
std::vector<std::int32_t> candidates_of(const BiasedGateParams& params, const std::vector<float>& biased) {
  const std::int32_t group_size = params.num_experts / params.num_groups;
  std::vector<float> values(params.num_groups);
  for (std::int32_t group = 0; group < params.num_groups; ++group) {
    values[group] = group_value(biased.data() + std::int64_t{group} * group_size, group_size);
  }
  std::vector<std::int32_t> groups(params.num_groups);
  std::iota(groups.begin(), groups.end(), 0);
  partial_sort_by(values, params.top_groups, groups);

  std::vector<std::int32_t> candidates(std::int64_t{params.top_groups} * group_size);
  for (std::int32_t rank = 0; rank < params.top_groups; ++rank) {
    const auto first = candidates.begin() + std::int64_t{rank} * group_size;
    std::iota(first, first + group_size, groups[rank] * group_size);
  }
  return candidates;
}

void choose_experts(const BiasedGateParams& params, std::int64_t token) {
  const float* logits = params.logits + token * params.num_experts;
  std::vector<float> scores(params.num_experts);
  std::vector<float> biased(params.num_experts);
  for (std::int32_t expert = 0; expert < params.num_experts; ++expert) {
    scores[expert] = score_of(params.scoring, logits[expert]);
    biased[expert] = rankable(scores[expert] + (params.bias == nullptr ? 0.0F : params.bias[expert]));
  }
  std::vector<std::int32_t> candidates = candidates_of(params, biased);
  partial_sort_by(biased, params.top_k, candidates);

  std::int32_t* ids = params.expert_ids + token * params.top_k;
  float* weights = params.weights + token * params.top_k;
  float sum = 0.0F;
  for (std::int32_t rank = 0; rank < params.top_k; ++rank) {
    ids[rank] = candidates[rank];
    weights[rank] = scores[ids[rank]];
    sum += weights[rank];
  }
  constexpr float kSmallestSum = 1e-20F;
  const float divisor = params.normalize ? sum + kSmallestSum : 1.0F;
  for (std::int32_t rank = 0; rank < params.top_k; ++rank) weights[rank] = weights[rank] / divisor * params.scale;
}

}  // namespace

void moe_biased_gate(device::Stream& stream, const BiasedGateParams& params) {
  if (params.num_tokens == 0) return;
  CHECK_GT(params.top_k, 0);
  CHECK_GT(params.num_groups, 0);
  CHECK_EQ(params.num_experts % params.num_groups, 0);
  CHECK_GT(params.top_groups, 0);
  CHECK_LE(params.top_groups, params.num_groups);
  CHECK_LE(params.top_k, params.num_experts / params.num_groups * params.top_groups);
  constexpr std::int64_t kLogitCost = 64;  // its exponential, logarithm and root, and its part of the sort
  for_each_row(stream, params.num_tokens, kLogitCost * params.num_experts,
               [&](std::int64_t token) { choose_experts(params, token); });
}

}  // namespace thalweg::kernels
