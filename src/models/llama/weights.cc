#include "models/llama/weights.h"

#include <fmt/core.h>

#include <cmath>

namespace thalweg::models::llama {

PreNormWeights load_weights(layers::WeightReader& reader, const Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const TensorNames names(reader.checkpoint());
  const layers::AttentionFeatures features{
      .qkv_bias = config.qkv_bias, .out_bias = config.out_bias, .interleaved_rotary_rows = names.gguf()};

  PreNormWeights weights = load_outer_weights(reader, names, decoder);
  for (std::int32_t layer = 0; layer < decoder.num_layers; ++layer) {
    PreNormBlock& block = weights.blocks.emplace_back(load_attention_half(reader, names, decoder, features, layer));
    block.feed_forward =
        layers::load_gated_mlp(reader, names.mlp(layer), decoder.hidden_size, decoder.intermediate_size,
                               kernels::Epilogue::kSiluMul, config.mlp_bias);
  }
  return weights;
}

Status apply_rope_divisors(layers::WeightReader& reader, kernels::RopeFrequencies& frequencies) {
  constexpr const char* kTensor = "rope_freqs.weight";
  if (!reader.has(kTensor)) return {};
  const std::vector<float> divisors = reader.vector(kTensor, static_cast<std::int64_t>(frequencies.inverse.size()));
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    if (!std::isfinite(divisors[i]) || divisors[i] <= 0.0F) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: element {} of {} is {}, needed a positive number",
                                                           reader.checkpoint().path(), i, kTensor, divisors[i]));
    }
    frequencies.inverse[i] /= divisors[i];
  }
  return {};
}

}  // namespace thalweg::models::llama
