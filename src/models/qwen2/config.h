// Qwen2 and Qwen2.5.
#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::qwen2 {

struct Config {
  DecoderConfig decoder;
  RopeConfig rope;
  std::vector<std::int32_t> windows;  // per layer, 0: all keys
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::qwen2
