#include "models/deepseek_v3/feed_forward.h"

#include "kernels/linear/linear.h"
#include "kernels/moe/moe.h"

namespace thalweg::models::deepseek_v3 {

BalancedMoe load_balanced_moe(layers::WeightReader& reader, const std::string& prefix, const Config& config) {
  BalancedMoe layer;
  layer.router = config.router;
  layer.routed = layers::load_moe(reader, prefix + "gate", prefix + "experts", config.experts, config.router.normalize);
  layer.bias = reader.vector(prefix + "gate.e_score_correction_bias", config.experts.num_experts);
  layer.shared = layers::load_gated_mlp(reader,
                                        {.gate = prefix + "shared_experts.gate_proj",
                                         .up = prefix + "shared_experts.up_proj",
                                         .down = prefix + "shared_experts.down_proj"},
                                        config.experts.hidden_size, config.shared_size(), kernels::Epilogue::kSiluMul);
  return layer;
}

void balanced_moe(device::Stream& stream, const BalancedMoe& layer, std::int64_t num_tokens, const float* x,
                  layers::MoeScratch& scratch, float* inner, float* residual) {
  const layers::MoeShape& shape = layer.routed.shape;
  kernels::linear(stream, {.x = x,
                           .x_stride = shape.hidden_size,
                           .num_tokens = num_tokens,
                           .weight = &layer.routed.gate,
                           .out = scratch.logits(),
                           .out_stride = shape.num_experts});
  kernels::moe_biased_gate(stream, {.logits = scratch.logits(),
                                    .num_tokens = num_tokens,
                                    .num_experts = shape.num_experts,
                                    .top_k = shape.top_k,
                                    .scoring = kernels::GateScoring::kSigmoid,
                                    .bias = layer.bias.data(),
                                    .num_groups = layer.router.num_groups,
                                    .top_groups = layer.router.top_groups,
                                    .normalize = layer.router.normalize,
                                    .scale = layer.router.scale,
                                    .expert_ids = scratch.expert_ids(),
                                    .weights = scratch.weights()});
  kernels::moe_experts(stream, {.x = x,
                                .num_tokens = num_tokens,
                                .top_k = shape.top_k,
                                .expert_ids = scratch.expert_ids(),
                                .weights = scratch.weights(),
                                .gate_up = layer.routed.gate_up,
                                .down = layer.routed.down,
                                .out = residual});
  layers::gated_mlp(stream, layer.shared, num_tokens, x, inner, kernels::Epilogue::kAccumulate, residual);
}

}  // namespace thalweg::models::deepseek_v3
