// DeepSeek-V3, R1 and V3.2: sizes of multi-head latent attention, of the experts and, in V3.2, of the index.
#pragma once

#include <cstdint>

#include "kernels/rope/rope.h"
#include "layers/moe.h"
#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v3 {

/// Queries and the pair of keys and values pass through low-rank bottlenecks; position enters through separate
/// channels, one key of them for all heads.
struct MlaShape {
  std::int32_t hidden_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t q_lora_rank = 0;  // 0: queries come straight from the hidden state
  std::int32_t kv_lora_rank = 0;
  std::int32_t nope_dim = 0;  // channels of a query and key without position
  std::int32_t rope_dim = 0;  // channels with
  std::int32_t value_dim = 0;

  std::int64_t qk_dim() const { return std::int64_t{nope_dim} + rope_dim; }
  std::int64_t q_size() const { return num_heads * qk_dim(); }
  std::int64_t value_size() const { return std::int64_t{num_heads} * value_dim; }
  /// What the cache holds of a token: the latent, then the rotated key.
  std::int32_t row_dim() const { return kv_lora_rank + rope_dim; }
};

/// Which experts the router may choose.
struct RouterConfig {
  std::int32_t num_groups = 1;
  std::int32_t top_groups = 1;
  bool normalize = true;
  float scale = 1.0F;
};

/// V3.2's index: small keys of all tokens, of which each query picks the best.
struct IndexShape {
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t top_k = 0;  // 0: no index, queries see all tokens
};

struct Config {
  DecoderConfig decoder;  // num_kv_heads and head_dim mean nothing here
  MlaShape attention;
  float attention_scale = 1.0F;
  RopeConfig rope;
  kernels::RopePairing rope_pairing = kernels::RopePairing::kInterleaved;
  std::int32_t num_dense_layers = 0;  // the first ones
  layers::MoeShape experts;
  RouterConfig router;
  std::int32_t num_shared_experts = 0;  // stored as one expert that much wider
  IndexShape index;
  std::int32_t num_mtp_layers = 0;  // behind the others, not loaded

  std::int64_t shared_size() const { return experts.intermediate_size * num_shared_experts; }
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::deepseek_v3
