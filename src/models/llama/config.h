// Llama 2 and 3, SmolLM2 and whatever else is stored as one of them.
#pragma once

#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::llama {

struct Config {
  DecoderConfig decoder;
  RopeConfig rope;
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::llama
