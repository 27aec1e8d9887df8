// Which tensors a Gemma 3 checkpoint holds.
#pragma once

#include <vector>

#include "layers/attention.h"
#include "layers/gated_mlp.h"
#include "layers/norm.h"
#include "layers/vocabulary.h"
#include "layers/weight_reader.h"
#include "models/gemma3/config.h"

namespace thalweg::models::gemma3 {

/// Each part stands between two norms; the second one is applied before the part joins the residual stream.
struct Block {
  layers::Norm attention_norm;
  layers::Attention attention;
  layers::Norm post_attention_norm;
  layers::Norm mlp_norm;
  layers::GatedMlp mlp;
  layers::Norm post_mlp_norm;
};

struct Weights {
  layers::Vocabulary vocabulary;
  std::vector<Block> blocks;
  layers::Norm final_norm;
};

/// Problems are left in `reader.status()`.
Weights load_weights(layers::WeightReader& reader, const Config& config);

}  // namespace thalweg::models::gemma3
