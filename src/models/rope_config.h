// The rotary embedding as a checkpoint describes it.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/rope/rope.h"
#include "models/config_reader.h"

namespace thalweg::models {

struct RopeConfig {
  kernels::RopeFrequencies frequencies;
  std::int32_t max_position = 0;  // positions the scaling was made for
};

/// Where a config.json keeps the numbers. transformers 4 writes rope_theta beside a rope_scaling object, transformers
/// 5 puts both into rope_parameters (Gemma 3: one such object per kind of layer).
struct RopeKeys {
  std::string scaling;  // "rope_scaling", "rope_parameters" or "rope_parameters.full_attention"
  std::string base;     // "rope_theta" or "rope_parameters.rope_theta", ...
};

/// The spelling that this config.json uses.
RopeKeys find_rope_keys(const ConfigReader& reader);

/// Scalings: default, linear, llama3, yarn, and dynamic up to the length below which it changes nothing.
RopeConfig read_rope_hugging_face(ConfigReader& reader, const RopeKeys& keys, double default_base,
                                  std::int32_t head_dim, std::int32_t max_position);

/// Scalings: none, linear, yarn, and the divisors of `rope_freqs.weight` (Llama 3).
RopeConfig read_rope_gguf(ConfigReader& reader, std::int32_t head_dim, std::int32_t max_position);

}  // namespace thalweg::models
