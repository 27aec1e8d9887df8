// The shared blocks of one engine: the pool and the prefix index, kept in step with each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_cache/block_hash.h"
#include "kv_cache/block_pool.h"
#include "kv_cache/cache_spec.h"
#include "kv_cache/prefix_index.h"

namespace thalweg::kv_cache {

/// Ids and counts only; the bytes are the worker's. Engine thread.
///
/// A block may be released while the executor still writes to it: plans run in order, so whoever
/// gets it next writes later.
class KvBlocks {
 public:
  KvBlocks(const CacheSpec& spec, std::int64_t num_blocks, bool enable_prefix_cache);

  const CacheSpec& spec() const { return spec_; }
  bool prefix_cache_enabled() const { return enable_prefix_cache_; }
  std::int64_t num_blocks() const { return pool_.num_blocks(); }
  std::int64_t num_free() const { return pool_.num_free(); }
  std::int64_t num_used() const { return pool_.num_used(); }
  std::int64_t num_cached() const { return index_.size(); }
  std::int32_t blocks_for(std::int64_t num_tokens) const {
    return static_cast<std::int32_t>((num_tokens + spec_.block_size - 1) / spec_.block_size);
  }
  /// Changes whenever a request that did not fit might fit.
  std::uint64_t version() const { return version_; }

  /// Appends `count` fresh blocks to `table`, evicting the least recently used cached content where
  /// nothing else is free. Precondition: count <= num_free().
  void grow(std::vector<BlockId>& table, std::int32_t count);

  /// The longest cached run from the front of `hashes`; nobody holds it yet. Empty when the prefix
  /// cache is off.
  void find_run(std::span<const BlockHash> hashes, std::vector<BlockId>& blocks) const;

  /// Block tables that hold it.
  std::int32_t num_holders(BlockId block) const { return pool_.num_references(block); }

  /// How many of `blocks` are free now, that is, lost to others once they are shared.
  std::int64_t count_free(std::span<const BlockId> blocks) const;

  /// Appends `blocks` to `table`, one more holder each.
  void share(std::span<const BlockId> blocks, std::vector<BlockId>& table);

  /// Gives up all blocks of `table`, the last first, so that a prefix outlives its continuations.
  void release_all(std::vector<BlockId>& table);

  /// `block` is full and its content is computed by a submitted step.
  void publish(BlockId block, const BlockHash& hash);

  /// Content of these names cannot be trusted, wherever it is.
  void forget(std::span<const BlockHash> hashes);

  /// Drops all cached content. Precondition: num_used() == 0.
  void reset_prefix_cache();

  /// `tables`: all block tables there are. Aborts when a count disagrees. O(num_blocks).
  void check_invariants(std::span<const std::vector<BlockId>* const> tables) const;

 private:
  const CacheSpec spec_;
  const bool enable_prefix_cache_;
  BlockPool pool_;
  PrefixIndex index_;
  std::uint64_t version_ = 0;
};

}  // namespace thalweg::kv_cache
