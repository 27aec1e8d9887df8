#include "layers/moe.h"

#include <fmt/core.h>

#include "kernels/moe/moe.h"

namespace thalweg::layers {

Moe load_moe(WeightReader& reader, const std::string& gate, const std::string& experts, const MoeShape& shape,
             bool normalize) {
  Moe layer;
  layer.shape = shape;
  layer.normalize = normalize;
  layer.gate = reader.linear(gate, shape.num_experts, shape.hidden_size);
  if (reader.checkpoint().kind() == weights::CheckpointKind::kGguf) {
    layer.gate_up = reader.stacked_experts(
        {{experts + "ffn_gate_exps", shape.intermediate_size}, {experts + "ffn_up_exps", shape.intermediate_size}},
        shape.num_experts, shape.hidden_size, kernels::RowOrder::kInterleave);
    layer.down = reader.stacked_experts({{experts + "ffn_down_exps", shape.hidden_size}}, shape.num_experts,
                                        shape.intermediate_size, kernels::RowOrder::kConcatenate);
    return layer;
  }
  for (std::int32_t expert = 0; expert < shape.num_experts; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", experts, expert);
    layer.gate_up.push_back(
        reader.linear({{prefix + "gate_proj", shape.intermediate_size}, {prefix + "up_proj", shape.intermediate_size}},
                      shape.hidden_size, kernels::RowOrder::kInterleave));
    layer.down.push_back(reader.linear(prefix + "down_proj", shape.hidden_size, shape.intermediate_size));
  }
  return layer;
}

MoeScratch::MoeScratch(std::int64_t max_tokens, const MoeShape& shape)
    : logits_(static_cast<std::size_t>(max_tokens * shape.num_experts) * sizeof(float)),
      expert_ids_(static_cast<std::size_t>(max_tokens * shape.top_k) * sizeof(std::int32_t)),
      weights_(static_cast<std::size_t>(max_tokens * shape.top_k) * sizeof(float)) {}

void moe(device::Stream& stream, const Moe& layer, std::int64_t num_tokens, const float* x, MoeScratch& scratch,
         float* residual) {
  const MoeShape& shape = layer.shape;
  kernels::linear(stream, {.x = x,
                           .x_stride = shape.hidden_size,
                           .num_tokens = num_tokens,
                           .weight = &layer.gate,
                           .out = scratch.logits(),
                           .out_stride = shape.num_experts});
  kernels::moe_softmax_gate(stream, {.logits = scratch.logits(),
                                     .num_tokens = num_tokens,
                                     .num_experts = shape.num_experts,
                                     .top_k = shape.top_k,
                                     .normalize = layer.normalize,
                                     .expert_ids = scratch.expert_ids(),
                                     .weights = scratch.weights()});
  kernels::moe_experts(stream, {.x = x,
                                .num_tokens = num_tokens,
                                .top_k = shape.top_k,
                                .expert_ids = scratch.expert_ids(),
                                .weights = scratch.weights(),
                                .gate_up = layer.gate_up,
                                .down = layer.down,
                                .out = residual});
}

}  // namespace thalweg::layers
