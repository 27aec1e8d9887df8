#include "models/qwen3_moe/weights.h"

namespace thalweg::models::qwen3_moe {

PreNormWeights load_weights(layers::WeightReader& reader, const Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const TensorNames names(reader.checkpoint());
  const layers::AttentionFeatures features{.qkv_bias = config.attention_bias,
                                           .out_bias = config.attention_bias,
                                           .head_norms = true,
                                           .head_norm_epsilon = decoder.norm_epsilon};

  PreNormWeights weights = load_outer_weights(reader, names, decoder);
  for (std::int32_t layer = 0; layer < decoder.num_layers; ++layer) {
    PreNormBlock& block = weights.blocks.emplace_back(load_attention_half(reader, names, decoder, features, layer));
    block.attention.window = config.window;
    if (config.is_sparse[static_cast<std::size_t>(layer)]) {
      block.feed_forward =
          layers::load_moe(reader, names.block(layer, "ffn_gate_inp", "mlp.gate"),
                           names.block(layer, "", "mlp.experts"), config.experts, config.normalize_expert_weights);
    } else {
      block.feed_forward = layers::load_gated_mlp(reader, names.mlp(layer), decoder.hidden_size,
                                                  decoder.intermediate_size, kernels::Epilogue::kSiluMul);
    }
  }
  return weights;
}

}  // namespace thalweg::models::qwen3_moe
