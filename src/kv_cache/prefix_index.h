// Which block holds which content.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv_cache/block_hash.h"
#include "kv_cache/block_pool.h"
#include "kv_cache/cache_spec.h"

namespace thalweg::kv_cache {

/// One block per content and one content per block. Knows nothing of references. Engine thread.
class PrefixIndex {
 public:
  explicit PrefixIndex(std::int64_t num_blocks);

  std::int64_t size() const { return static_cast<std::int64_t>(block_of_.size()); }

  std::optional<BlockId> find(const BlockHash& hash) const;

  /// The blocks of the longest known run from the front of `hashes`, into `blocks`.
  void find_run(std::span<const BlockHash> hashes, std::vector<BlockId>& blocks) const;

  /// False if that content is already known in another block; then nothing changes.
  bool insert(const BlockHash& hash, BlockId block);
  /// Forgets what `block` holds, if anything.
  void erase(BlockId block);

  bool contains(BlockId block) const { return entries_[static_cast<std::size_t>(block)].known; }

  void check_invariants() const;

 private:
  struct Entry {
    BlockHash hash;
    bool known = false;
  };

  std::unordered_map<BlockHash, BlockId, BlockHashHasher> block_of_;
  std::vector<Entry> entries_;  // by block
};

/// How much of a hit of `num_hit_tokens` a sequence of `num_tokens` takes: whole blocks and granules, and at least one
/// token is left to compute. Positions before its end are never written again, so a shared block has one writer in its
/// life.
std::int32_t cut_hit(const CacheSpec& spec, std::int64_t num_hit_tokens, std::int64_t num_tokens);

/// Where computing starts after a hit that `cut_hit` has cut: the model's replay before its end, for the state alone.
std::int32_t first_token_after_hit(const CacheSpec& spec, std::int32_t num_cached_tokens);

}  // namespace thalweg::kv_cache
