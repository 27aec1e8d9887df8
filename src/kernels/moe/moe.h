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

/// How DeepSeek's routers make scores of logits.
enum class GateScoring : std::uint8_t {
  kSigmoid,       // V3
  kSqrtSoftplus,  // V4 and later
};

struct BiasedGateParams {
  const float* logits = nullptr;  // [num_tokens, num_experts]
  std::int64_t num_tokens = 0;
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  GateScoring scoring = GateScoring::kSigmoid;
  const float* bias = nullptr;  // [num_experts], added for the choice only; or null
  /// Only experts of the `top_groups` groups with the largest sums of their two best biased scores may be chosen.
  std::int32_t num_groups = 1;
  std::int32_t top_groups = 1;
  bool normalize = true;               // divide the chosen scores by their sum
  float scale = 1.0F;                  // then multiply by this
  std::int32_t* expert_ids = nullptr;  // [num_tokens, top_k], best biased score first; ties go to the lower id
  float* weights = nullptr;            // [num_tokens, top_k]
};

/// DeepSeek's router without auxiliary loss: the bias selects but never weights. fp32 throughout. NaN logits never
/// yield an id out of range.
void moe_biased_gate(device::Stream& stream, const BiasedGateParams& params);

struct ClampedExpertsParams {
  const float* x = nullptr;  // [num_tokens, hidden_size]; already quantised where products are to see FP8 activations
  std::int64_t num_tokens = 0;
  std::int32_t top_k = 0;
  const std::int32_t* expert_ids = nullptr;  // [num_tokens, top_k]; null: everybody passes through expert 0 (top_k 1)
  const float* weights = nullptr;            // [num_tokens, top_k]; null: ones
  std::span<const LinearWeight> gate_up;     // per expert, rows interleaved gate, up
  std::span<const LinearWeight> down;        // per expert
  /// gate <= limit, -limit <= up <= limit; 0: no clamp.
  float limit = 0.0F;
  bool weighs_before_down = true;      // multiply by the weight before the down projection, otherwise after it
  bool rounds_bf16 = false;            // outputs of the three projections and the activation
  bool quantizes_activations = false;  // the activation passes through kF8Block32 before the down projection
  float* out = nullptr;                // [num_tokens, hidden_size]; the sum in fp32 is added
};

/// SwiGLU experts of DeepSeek-V4 and later (DeepSeek-V4.1 specification, sections 6.2 and 6.3). Tokens are gathered per
/// expert; a token's experts are added in the order of `expert_ids`, so its result does not depend on the batch.
void moe_clamped_experts(device::Stream& stream, const ClampedExpertsParams& params);

}  // namespace thalweg::kernels
