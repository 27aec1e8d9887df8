#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/moe/moe.h"

namespace thalweg::kernels {
namespace {

constexpr std::int64_t kLogitsPerTask = 4096;  // some tens of microseconds of one thread

/// `probabilities` is scratch of num_experts.
void choose_experts(const MoeGateParams& params, std::int64_t token, std::span<float> probabilities) {
  const float* logits = params.logits + token * params.num_experts;
  std::int32_t* ids = params.expert_ids + token * params.top_k;
  float* weights = params.weights + token * params.top_k;

  const float highest = *std::max_element(logits, logits + params.num_experts);
  float sum = 0.0F;
  for (std::int32_t expert = 0; expert < params.num_experts; ++expert) {
    probabilities[expert] = std::exp(logits[expert] - highest);
    sum += probabilities[expert];
  }

  constexpr float kChosen = -1.0F;
  float chosen_sum = 0.0F;
  for (std::int32_t rank = 0; rank < params.top_k; ++rank) {
    // A NaN is never greater, so a row of NaN yields experts that are wrong but exist, each once.
    std::int32_t best = -1;
    for (std::int32_t expert = 0; expert < params.num_experts; ++expert) {
      if (probabilities[expert] == kChosen) continue;
      if (best < 0 || probabilities[expert] > probabilities[best]) best = expert;
    }
    ids[rank] = best;
    weights[rank] = probabilities[best];
    chosen_sum += weights[rank];
    probabilities[best] = kChosen;
  }
  const float divisor = params.normalize ? chosen_sum : sum;
  for (std::int32_t rank = 0; rank < params.top_k; ++rank) weights[rank] /= divisor;
}

}  // namespace

void moe_softmax_gate(device::Stream& stream, const MoeGateParams& params) {
  if (params.num_tokens == 0) return;
  CHECK_GT(params.top_k, 0);
  CHECK_LE(params.top_k, params.num_experts);
  const std::int64_t tokens_per_task = std::max<std::int64_t>(1, kLogitsPerTask / params.num_experts);
  const auto run_task = [&](std::int64_t task, int) {
    std::vector<float> probabilities(params.num_experts);
    const std::int64_t end = std::min(params.num_tokens, (task + 1) * tokens_per_task);
    for (std::int64_t token = task * tokens_per_task; token < end; ++token) {
      choose_experts(params, token, probabilities);
    }
  };
  const std::int64_t num_tasks = (params.num_tokens + tokens_per_task - 1) / tokens_per_task;
  if (num_tasks == 1) {
    run_task(0, 0);
  } else {
    stream.threads->parallel_for(num_tasks, run_task);
  }
}

}  // namespace thalweg::kernels
