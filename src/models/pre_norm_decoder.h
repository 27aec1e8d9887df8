// The decoder that Llama, Qwen2, Qwen3 and Qwen3-MoE share: in each block a norm, grouped-query attention, a norm, a
// feed-forward part, both parts added to the residual stream. What tells the families apart (biases, head norms,
// windows, experts) are parts of the layers that may be left out; their folders read the configuration and the weights.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "layers/attention.h"
#include "layers/gated_mlp.h"
#include "layers/moe.h"
#include "layers/norm.h"
#include "layers/vocabulary.h"
#include "layers/weight_reader.h"
#include "models/decoder_config.h"
#include "models/load_options.h"
#include "models/model.h"
#include "models/rope_config.h"
#include "models/tensor_names.h"
#include "thalweg/error.h"

namespace thalweg::models {

struct PreNormBlock {
  layers::Norm attention_norm;
  layers::Attention attention;
  layers::Norm feed_forward_norm;
  std::variant<layers::GatedMlp, layers::Moe> feed_forward;
};

struct PreNormWeights {
  layers::Vocabulary vocabulary;
  std::vector<PreNormBlock> blocks;
  layers::Norm final_norm;
};

/// Everything but the blocks, which the caller adds.
PreNormWeights load_outer_weights(layers::WeightReader& reader, const TensorNames& names, const DecoderConfig& config);

/// A block without its feed-forward part, which the caller adds.
PreNormBlock load_attention_half(layers::WeightReader& reader, const TensorNames& names, const DecoderConfig& config,
                                 const layers::AttentionFeatures& features, std::int32_t layer);

/// The end of loading: fails with what `reader` found missing or misshapen, names tensors that nobody asked for, and
/// makes the model of the rest.
Result<std::unique_ptr<Model>> make_pre_norm_decoder(std::string architecture, const DecoderConfig& config,
                                                     RopeConfig rope, PreNormWeights weights,
                                                     const layers::WeightReader& reader, const LoadOptions& options);

}  // namespace thalweg::models
