#include "models/qwen2/weights.h"

namespace thalweg::models::qwen2 {

PreNormWeights load_weights(layers::WeightReader& reader, const Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const TensorNames names(reader.checkpoint());

  PreNormWeights weights = load_outer_weights(reader, names, decoder);
  for (std::int32_t layer = 0; layer < decoder.num_layers; ++layer) {
    PreNormBlock& block =
        weights.blocks.emplace_back(load_attention_half(reader, names, decoder, {.qkv_bias = true}, layer));
    block.attention.window = config.windows[static_cast<std::size_t>(layer)];
    block.feed_forward = layers::load_gated_mlp(reader, names.mlp(layer), decoder.hidden_size,
                                                decoder.intermediate_size, kernels::Epilogue::kSiluMul);
  }
  return weights;
}

}  // namespace thalweg::models::qwen2
