// Mixture of experts: choosing experts and running each on its tokens.
#pragma once

#include <cstdint>
#include <span>

#include "device/stream.h"
#include "kernels/linear/linear.h"

namespace thalweg::kernels {

struct MoeGateParams {
  const float* logits = nullptr;  // [num_tokens, num_experts]
  std::int64_t num_tokens = 0;
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  bool normalize = true;               // divide the chosen probabilities by their sum
  std::int32_t* expert_ids = nullptr;  // [num_tokens, top_k], most likely first; ties go to the lower id
  float* weights = nullptr;            // [num_tokens, top_k]
};

/// Softmax over all experts in fp32, then the top k. NaN logits never yield an id out of range.
void moe_softmax_gate(device::Stream& stream, const MoeGateParams& params);

struct MoeExpertsParams {
  const float* x = nullptr;  // [num_tokens, hidden_size]
  std::int64_t num_tokens = 0;
  std::int32_t top_k = 0;
  const std::int32_t* expert_ids = nullptr;  // [num_tokens, top_k]
  const float* weights = nullptr;            // [num_tokens, top_k]
  std::span<const LinearWeight> gate_up;     // per expert, rows interleaved gate, up
  std::span<const LinearWeight> down;        // per expert
  float* out = nullptr;                      // [num_tokens, hidden_size]; the weighted sum is added
};

/// Tokens are gathered per expert; a token's experts are added in the order of `expert_ids`, so its result does not
/// depend on the batch.
void moe_experts(device::Stream& stream, const MoeExpertsParams& params);

}  // namespace thalweg::kernels
