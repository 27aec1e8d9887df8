// Which tensors a DeepSeek-V3 checkpoint holds.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "layers/gated_mlp.h"
#include "layers/norm.h"
#include "layers/vocabulary.h"
#include "layers/weight_reader.h"
#include "models/deepseek_v3/config.h"
#include "models/deepseek_v3/feed_forward.h"
#include "models/deepseek_v3/indexer.h"
#include "models/deepseek_v3/mla.h"

namespace thalweg::models::deepseek_v3 {

struct Block {
  layers::Norm attention_norm;
  Mla attention;
  std::optional<Indexer> indexer;  // V3.2
  layers::Norm feed_forward_norm;
  std::variant<layers::GatedMlp, BalancedMoe> feed_forward;
};

struct Weights {
  layers::Vocabulary vocabulary;
  std::vector<Block> blocks;
  layers::Norm final_norm;
};

/// Problems are left in `reader.status()`.
Weights load_weights(layers::WeightReader& reader, device::Stream& stream, const Config& config);

}  // namespace thalweg::models::deepseek_v3
