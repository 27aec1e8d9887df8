// What the control tower knows about a model's memory: numbers, no meaning.
#pragma once

#include <cstdint>

namespace thalweg::kv_cache {

/// A model answers with one of these. All shared layers of a model live in the same block: a block
/// id addresses `block_size` consecutive tokens of one sequence in every layer that is shared by
/// content.
struct CacheSpec {
  std::int32_t block_size = 16;           // tokens per block
  std::int64_t bytes_per_block = 0;       // all layers together
  std::int64_t state_bytes_per_slot = 0;  // memory owned by one sequence (rings, open groups)
  std::int32_t hit_granularity = 1;       // a prefix hit is cut to a multiple of this many tokens
  std::int32_t replay_tokens = 0;         // tokens before a hit's end to compute again, for the state alone
};

}  // namespace thalweg::kv_cache
