#include "models/deepseek_v3/weights.h"

#include <string>

#include "models/tensor_names.h"

namespace thalweg::models::deepseek_v3 {
namespace {

Block load_block(layers::WeightReader& reader, device::Stream& stream, const TensorNames& names, const Config& config,
                 std::int32_t layer) {
  const DecoderConfig& decoder = config.decoder;
  const std::string prefix = names.block(layer, "", "");
  const auto norm = [&](const char* name) {
    return layers::load_norm(reader, prefix + name, decoder.hidden_size, decoder.norm_epsilon);
  };

  Block block;
  block.attention_norm = norm("input_layernorm");
  block.attention = load_mla(reader, stream, prefix + "self_attn.", config);
  if (config.index.top_k > 0) block.indexer = load_indexer(reader, prefix + "self_attn.indexer.", config);
  block.feed_forward_norm = norm("post_attention_layernorm");
  if (layer < config.num_dense_layers) {
    block.feed_forward = layers::load_gated_mlp(reader, names.mlp(layer), decoder.hidden_size,
                                                decoder.intermediate_size, kernels::Epilogue::kSiluMul);
  } else {
    block.feed_forward = load_balanced_moe(reader, prefix + "mlp.", config);
  }
  return block;
}

}  // namespace

Weights load_weights(layers::WeightReader& reader, device::Stream& stream, const Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const TensorNames names(reader.checkpoint());
  Weights weights;
  weights.vocabulary = layers::load_vocabulary(reader, names.embedding(), decoder.tied_head ? "" : names.head(),
                                               decoder.vocab_size, decoder.hidden_size);
  weights.final_norm = layers::load_norm(reader, names.final_norm(), decoder.hidden_size, decoder.norm_epsilon);
  for (std::int32_t layer = 0; layer < decoder.num_layers; ++layer) {
    weights.blocks.push_back(load_block(reader, stream, names, config, layer));
  }
  return weights;
}

}  // namespace thalweg::models::deepseek_v3
