// Which blocks does a sequence need, and which of them can it have from others?
#pragma once

#include <cstdint>
#include <vector>

#include "kv_cache/kv_blocks.h"
#include "scheduler/sequence.h"

namespace thalweg::scheduler {

/// What a sequence that starts now would find computed.
struct PrefixHit {
  std::int32_t num_cached_tokens = 0;
  std::vector<kv_cache::BlockId> blocks;  // num_cached_tokens / block_size
  std::int64_t num_free_blocks = 0;       // of them, free now
  bool from_prefix_cache = false;
};

/// The blocks of one engine's sequences. Engine thread.
class SequenceBlocks {
 public:
  SequenceBlocks(kv_cache::KvBlocks& kv, const kv_cache::BlockHasher& hasher) : kv_(kv), hasher_(hasher) {}

  /// The better of the prefix cache and a running sequence of the same request; the second works
  /// without a prefix cache. Nothing for a sequence that owes prompt logprobs: it must see all tokens.
  PrefixHit find_hit(Sequence& sequence) const;

  /// How many more blocks it takes to hold `num_tokens`.
  std::int32_t num_missing(const Sequence& sequence, std::int32_t num_tokens) const;

  void adopt(Sequence& sequence, const PrefixHit& hit) { kv_.share(hit.blocks, sequence.blocks); }
  void grow(Sequence& sequence, std::int32_t count) { kv_.grow(sequence.blocks, count); }
  void release(Sequence& sequence);

  /// Offers the full blocks of the first `num_tokens` tokens, which are known and computed by
  /// submitted steps, to the prefix index.
  void publish(Sequence& sequence, std::int32_t num_tokens);

  /// A row of the sequence failed: nothing it computed may be found again.
  void forget(Sequence& sequence);

 private:
  void extend_hashes(Sequence& sequence, std::int32_t num_tokens) const;
  void find_cached(Sequence& sequence, PrefixHit& hit) const;
  void find_sibling(const Sequence& sequence, PrefixHit& hit) const;

  kv_cache::KvBlocks& kv_;
  const kv_cache::BlockHasher& hasher_;
};

}  // namespace thalweg::scheduler
