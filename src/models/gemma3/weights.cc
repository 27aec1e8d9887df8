#include "models/gemma3/weights.h"

#include <string_view>

#include "models/tensor_names.h"

namespace thalweg::models::gemma3 {
namespace {

/// Gemma normalises with 1 + w. Hugging Face folders hold w, GGUF files hold the sum.
void add_one(layers::Norm& norm) {
  for (float& weight : norm.weight) weight += 1.0F;
}

Block load_block(layers::WeightReader& reader, const TensorNames& names, const Config& config, std::int32_t layer) {
  const DecoderConfig& decoder = config.decoder;
  const auto norm = [&](std::string_view gguf, std::string_view hugging_face) {
    return layers::load_norm(reader, names.block(layer, gguf, hugging_face), decoder.hidden_size, decoder.norm_epsilon);
  };

  Block block;
  block.attention_norm = norm("attn_norm", "input_layernorm");
  block.attention = layers::load_attention(reader, names.attention(layer), decoder.attention_shape(),
                                           {.head_norms = true, .head_norm_epsilon = decoder.norm_epsilon});
  block.attention.scale = config.attention_scale;
  block.attention.window = config.windows[static_cast<std::size_t>(layer)];
  block.post_attention_norm = norm("post_attention_norm", "post_attention_layernorm");
  block.mlp_norm = norm("ffn_norm", "pre_feedforward_layernorm");
  block.mlp = layers::load_gated_mlp(reader, names.mlp(layer), decoder.hidden_size, decoder.intermediate_size,
                                     kernels::Epilogue::kGeluMul);
  block.post_mlp_norm = norm("post_ffw_norm", "post_feedforward_layernorm");
  if (!names.gguf()) {
    for (layers::Norm* each : {&block.attention_norm, &block.attention.q_norm, &block.attention.k_norm,
                               &block.post_attention_norm, &block.mlp_norm, &block.post_mlp_norm}) {
      add_one(*each);
    }
  }
  return block;
}

}  // namespace

Weights load_weights(layers::WeightReader& reader, const Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const TensorNames names(reader.checkpoint());

  Weights weights;
  weights.vocabulary = layers::load_vocabulary(reader, names.embedding(), decoder.tied_head ? "" : names.head(),
                                               decoder.vocab_size, decoder.hidden_size);
  for (std::int32_t layer = 0; layer < decoder.num_layers; ++layer) {
    weights.blocks.push_back(load_block(reader, names, config, layer));
  }
  weights.final_norm = layers::load_norm(reader, names.final_norm(), decoder.hidden_size, decoder.norm_epsilon);
  if (!names.gguf()) add_one(weights.final_norm);
  return weights;
}

}  // namespace thalweg::models::gemma3
