// The numbers that all decoder families share.
#pragma once

#include <cstdint>
#include <string>

#include "layers/attention.h"
#include "models/config_reader.h"

namespace thalweg::models {

struct DecoderConfig {
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t num_layers = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t max_position = 0;
  float norm_epsilon = 0.0F;
  bool tied_head = false;  // the head is the embedding table

  layers::AttentionShape attention_shape() const { return {hidden_size, num_heads, num_kv_heads, head_dim}; }
};

/// What transformers assumes where a config.json is silent; 0 means that the field must be there.
struct DecoderDefaults {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  // 0: num_heads
  std::int64_t head_dim = 0;      // 0: hidden_size / num_heads
  std::int64_t max_position = 0;
  bool tied_head = false;
  std::string activation_key = "hidden_act";
  std::string activation = "silu";
};

/// "" for a language model alone, "text_config." for one inside a multimodal config.json, "llama." for GGUF.
std::string metadata_prefix(const weights::Checkpoint& checkpoint);

/// Reads either kind of checkpoint. Ask `reader.status()` before using the numbers.
DecoderConfig read_decoder_config(ConfigReader& reader, const DecoderDefaults& defaults);

}  // namespace thalweg::models
