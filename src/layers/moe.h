// Mixture of experts with a softmax gate: each token passes through the top_k experts that its gate rates highest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "kernels/linear/linear.h"
#include "layers/weight_reader.h"

namespace thalweg::layers {

struct MoeShape {
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // of one expert
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
};

struct Moe {
  MoeShape shape;
  bool normalize = true;  // the chosen experts' weights sum to one
  kernels::LinearWeight gate;
  std::vector<kernels::LinearWeight> gate_up;  // per expert, rows interleaved
  std::vector<kernels::LinearWeight> down;     // per expert
};

/// `experts` is the prefix of the tensors: "<experts>.<e>.gate_proj" of a Hugging Face folder, or the three stacked
/// tensors "<experts>ffn_gate_exps" of a GGUF file.
Moe load_moe(WeightReader& reader, const std::string& gate, const std::string& experts, const MoeShape& shape,
             bool normalize);

/// What the gate decides about a step's tokens. Owned by the model, sized once.
class MoeScratch {
 public:
  MoeScratch() = default;
  MoeScratch(std::int64_t max_tokens, const MoeShape& shape);
  float* logits() { return logits_.as<float>(); }
  std::int32_t* expert_ids() { return expert_ids_.as<std::int32_t>(); }
  float* weights() { return weights_.as<float>(); }

 private:
  device::Buffer logits_;      // [max_tokens, num_experts]
  device::Buffer expert_ids_;  // [max_tokens, top_k]
  device::Buffer weights_;     // [max_tokens, top_k]
};

/// residual += the weighted experts of x, both [num_tokens, hidden_size].
void moe(device::Stream& stream, const Moe& layer, std::int64_t num_tokens, const float* x, MoeScratch& scratch,
         float* residual);

}  // namespace thalweg::layers
