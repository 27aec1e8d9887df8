// Gemma 3, text part.
#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::gemma3 {

struct Config {
  DecoderConfig decoder;
  RopeConfig global_rope;             // of layers that see everything
  RopeConfig local_rope;              // of layers that see a window
  std::vector<std::int32_t> windows;  // per layer, 0: all keys
  float attention_scale = 0.0F;
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::gemma3
