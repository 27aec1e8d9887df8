// Qwen3 with mixture-of-experts layers.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/moe.h"
#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::qwen3_moe {

struct Config {
  DecoderConfig decoder;
  RopeConfig rope;
  layers::MoeShape experts;
  bool normalize_expert_weights = true;
  std::vector<bool> is_sparse;  // per layer: experts, or one dense feed-forward part
  std::int32_t window = 0;      // of all layers, 0: all keys
  bool attention_bias = false;  // on queries, keys, values and output
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::qwen3_moe
