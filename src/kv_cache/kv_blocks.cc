#include "kv_cache/kv_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::kv_cache {

KvBlocks::KvBlocks(const CacheSpec& spec, std::int64_t num_blocks, bool enable_prefix_cache)
    : spec_(spec), enable_prefix_cache_(enable_prefix_cache), pool_(num_blocks), index_(num_blocks) {
  CHECK_GT(spec.block_size, 0);
}

void KvBlocks::grow(std::vector<BlockId>& table, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    const BlockId block = pool_.take();
    if (pool_.has_content(block)) {
      index_.erase(block);
      pool_.set_content(block, false);
    }
    table.push_back(block);
  }
}

void KvBlocks::find_run(std::span<const BlockHash> hashes, std::vector<BlockId>& blocks) const {
  blocks.clear();
  if (enable_prefix_cache_) index_.find_run(hashes, blocks);
}

std::int64_t KvBlocks::count_free(std::span<const BlockId> blocks) const {
  return std::ranges::count_if(blocks, [this](BlockId block) { return pool_.num_references(block) == 0; });
}

void KvBlocks::share(std::span<const BlockId> blocks, std::vector<BlockId>& table) {
  for (BlockId block : blocks) {
    pool_.reference(block);
    table.push_back(block);
  }
}

void KvBlocks::release_all(std::vector<BlockId>& table) {
  if (!table.empty()) ++version_;
  for (auto block = table.rbegin(); block != table.rend(); ++block) pool_.release(*block);
  table.clear();
}

void KvBlocks::publish(BlockId block, const BlockHash& hash) {
  if (!enable_prefix_cache_ || index_.contains(block)) return;
  if (!index_.insert(hash, block)) return;
  pool_.set_content(block, true);
  ++version_;
}

void KvBlocks::forget(std::span<const BlockHash> hashes) {
  for (const BlockHash& hash : hashes) {
    const std::optional<BlockId> block = index_.find(hash);
    if (!block) continue;
    index_.erase(*block);
    pool_.set_content(*block, false);
  }
}

void KvBlocks::reset_prefix_cache() {
  CHECK_EQ(num_used(), 0);
  for (BlockId block = 0; block < num_blocks(); ++block) {
    index_.erase(block);
    pool_.set_content(block, false);
  }
  ++version_;
}

void KvBlocks::check_invariants(std::span<const std::vector<BlockId>* const> tables) const {
  std::vector<std::int32_t> num_holders(static_cast<std::size_t>(num_blocks()), 0);
  for (const std::vector<BlockId>* table : tables) {
    for (BlockId block : *table) ++num_holders[static_cast<std::size_t>(block)];
  }
  for (BlockId block = 0; block < num_blocks(); ++block) {
    CHECK_EQ(pool_.num_references(block), num_holders[static_cast<std::size_t>(block)]);
    CHECK_EQ(pool_.has_content(block), index_.contains(block));
  }
  CHECK_EQ(num_free() + num_used(), num_blocks());
  pool_.check_invariants();
  index_.check_invariants();
}

}  // namespace thalweg::kv_cache
