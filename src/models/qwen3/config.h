// Qwen3, dense.
#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::qwen3 {

struct Config {
  DecoderConfig decoder;
  RopeConfig rope;
  std::vector<std::int32_t> windows;  // per layer, 0: all keys
  bool attention_bias = false;        // on queries, keys, values and output
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::qwen3
