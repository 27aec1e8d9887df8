// DeepSeek-V4: how the layers attend, how the residual streams mix, how tokens reach experts.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/mhc/mhc.h"
#include "layers/moe.h"
#include "models/decoder_config.h"
#include "models/rope_config.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v4 {

/// Beside its window a layer sees compressed entries, one of `ratio` tokens.
enum class Compression : std::uint8_t {
  kNone,    // the window alone
  kSparse,  // ratio 4; an entry overlaps the group before it, and an index chooses entries for each query
  kHeavy,   // ratio 128; all entries are seen
};

inline constexpr std::int32_t kSparseRatio = 4;
inline constexpr std::int32_t kHeavyRatio = 128;

/// Tokens of an entry, 0 without entries.
inline std::int32_t ratio_of(Compression compression) {
  if (compression == Compression::kNone) return 0;
  return compression == Compression::kSparse ? kSparseRatio : kHeavyRatio;
}

struct AttentionShape {
  std::int32_t hidden_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;  // also of the row that serves as key and value of all heads
  std::int32_t rope_dim = 0;  // the last channels of a head
  std::int32_t q_lora_rank = 0;
  std::int32_t num_output_groups = 0;  // of heads, projected apart
  std::int32_t output_lora_rank = 0;
  std::int32_t window = 0;  // positions a query sees, its own included

  std::int64_t q_size() const { return std::int64_t{num_heads} * head_dim; }
  std::int64_t group_size() const { return q_size() / num_output_groups; }
};

struct IndexShape {
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t top_k = 0;
};

struct Config {
  DecoderConfig decoder;  // num_kv_heads and intermediate_size mean nothing here
  AttentionShape attention;
  IndexShape index;
  std::vector<Compression> compression;  // per layer
  RopeConfig window_rope;                // of layers without compression
  RopeConfig compressed_rope;            // of the others, for queries, window and entries alike
  kernels::MhcShape mhc;
  layers::MoeShape experts;
  std::int32_t num_hash_layers = 0;  // the first ones; the token id chooses the experts
  float router_scale = 1.0F;
  float swiglu_limit = 0.0F;
};

Result<Config> read_config(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::models::deepseek_v4
