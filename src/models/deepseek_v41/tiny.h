// Small V4.1 checkpoints of random weights, in the released layout: for trying the engine without the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/deepseek_v41/config.h"
#include "thalweg/error.h"

namespace thalweg::models::deepseek_v41 {

/// config.json of sizes that keep every mechanism alive (DeepSeek-V4.1 specification, section 12.3): layers of all
/// roles, lists shorter than what they choose from after 33 tokens, the real head layout. The Engram numbers that
/// follow from a tokenizer are missing.
extern const std::string_view kTinyConfig;

/// Writes shards and their index into a folder. A value depends on the seed, the weight's name and the place in it
/// alone; no library function is involved. Sublayers are small beside the residual streams, so that rounding is not
/// amplified. Holds one weight at a time in memory.
Status write_tiny_weights(const Config& config, std::uint64_t seed, const std::string& folder);

}  // namespace thalweg::models::deepseek_v41
