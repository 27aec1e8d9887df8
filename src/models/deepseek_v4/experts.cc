#include "models/deepseek_v4/experts.h"

#include <algorithm>
#include <cmath>

#include "device/thread_pool.h"
#include "kernels/linear/linear.h"
#include "kernels/moe/moe.h"

namespace thalweg::models::deepseek_v4 {
namespace {

/// The logarithm of 1 + e^x without overflow.
float softplus(float x) { return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))); }

/// The table names the experts, the gate weights them.
void hash_gate(device::Stream& stream, const Config& config, const ExpertWeights& weights,
               std::span<const std::int32_t> token_ids, layers::MoeScratch& scratch) {
  const std::int32_t top_k = config.experts.top_k;
  stream.threads->parallel_for(static_cast<std::int64_t>(token_ids.size()), [&](std::int64_t token, int) {
    const float* logits = scratch.logits() + token * config.experts.num_experts;
    const std::int32_t id = token_ids[static_cast<std::size_t>(token)];
    const std::int32_t* chosen = weights.experts_of_token.data() + std::int64_t{id} * top_k;
    float* shares = scratch.weights() + token * top_k;
    float total = 0.0F;
    for (std::int32_t i = 0; i < top_k; ++i) {
      shares[i] = std::sqrt(softplus(logits[chosen[i]]));
      total += shares[i];
    }
    constexpr float kNoDivisionByZero = 1e-20F;
    for (std::int32_t i = 0; i < top_k; ++i) shares[i] *= config.router_scale / (total + kNoDivisionByZero);
    std::copy_n(chosen, top_k, scratch.expert_ids() + token * top_k);
  });
}

void learned_gate(device::Stream& stream, const Config& config, const ExpertWeights& weights, std::int64_t num_tokens,
                  layers::MoeScratch& scratch) {
  kernels::moe_biased_gate(stream, {.logits = scratch.logits(),
                                    .num_tokens = num_tokens,
                                    .num_experts = config.experts.num_experts,
                                    .top_k = config.experts.top_k,
                                    .scoring = kernels::GateScoring::kSqrtSoftplus,
                                    .bias = weights.bias.data(),
                                    .scale = config.router_scale,
                                    .expert_ids = scratch.expert_ids(),
                                    .weights = scratch.weights()});
}

}  // namespace

void experts(device::Stream& stream, const Config& config, const ExpertWeights& weights,
             std::span<const std::int32_t> token_ids, const float* x, layers::MoeScratch& scratch, float* out) {
  const layers::MoeShape& shape = config.experts;
  const auto num_tokens = static_cast<std::int64_t>(token_ids.size());
  kernels::linear(stream, {.x = x,
                           .x_stride = shape.hidden_size,
                           .num_tokens = num_tokens,
                           .weight = &weights.gate,
                           .out = scratch.logits(),
                           .out_stride = shape.num_experts});
  if (weights.experts_of_token.empty()) {
    learned_gate(stream, config, weights, num_tokens, scratch);
  } else {
    hash_gate(stream, config, weights, token_ids, scratch);
  }
  std::fill_n(out, num_tokens * shape.hidden_size, 0.0F);
  kernels::moe_clamped_experts(stream, {.x = x,
                                        .num_tokens = num_tokens,
                                        .top_k = shape.top_k,
                                        .expert_ids = scratch.expert_ids(),
                                        .weights = scratch.weights(),
                                        .gate_up = weights.gate_up,
                                        .down = weights.down,
                                        .limit = config.swiglu_limit,
                                        .out = out});
  kernels::moe_clamped_experts(stream, {.x = x,
                                        .num_tokens = num_tokens,
                                        .top_k = 1,
                                        .gate_up = weights.shared_gate_up,
                                        .down = weights.shared_down,
                                        .limit = config.swiglu_limit,
                                        .out = out});
}

}  // namespace thalweg::models::deepseek_v4
