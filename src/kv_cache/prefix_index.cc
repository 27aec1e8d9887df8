#include "kv_cache/prefix_index.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace thalweg::kv_cache {

PrefixIndex::PrefixIndex(std::int64_t num_blocks) : entries_(static_cast<std::size_t>(num_blocks)) {
  block_of_.reserve(entries_.size());
}

std::optional<BlockId> PrefixIndex::find(const BlockHash& hash) const {
  const auto found = block_of_.find(hash);
  return found == block_of_.end() ? std::nullopt : std::optional(found->second);
}

void PrefixIndex::find_run(std::span<const BlockHash> hashes, std::vector<BlockId>& blocks) const {
  blocks.clear();
  for (const BlockHash& hash : hashes) {
    const std::optional<BlockId> block = find(hash);
    if (!block) return;
    blocks.push_back(*block);
  }
}

bool PrefixIndex::insert(const BlockHash& hash, BlockId block) {
  Entry& entry = entries_[static_cast<std::size_t>(block)];
  CHECK(!entry.known);
  if (!block_of_.try_emplace(hash, block).second) return false;
  entry = {hash, true};
  return true;
}

void PrefixIndex::erase(BlockId block) {
  Entry& entry = entries_[static_cast<std::size_t>(block)];
  if (!entry.known) return;
  CHECK_EQ(block_of_.erase(entry.hash), 1U);
  entry.known = false;
}

void PrefixIndex::check_invariants() const {
  std::size_t num_known = 0;
  for (std::size_t block = 0; block < entries_.size(); ++block) {
    if (!entries_[block].known) continue;
    ++num_known;
    const auto found = block_of_.find(entries_[block].hash);
    CHECK(found != block_of_.end());
    CHECK_EQ(static_cast<std::size_t>(found->second), block);
  }
  CHECK_EQ(num_known, block_of_.size());
}

std::int32_t cut_hit(const CacheSpec& spec, std::int64_t num_hit_tokens, std::int64_t num_tokens) {
  const std::int64_t granule = std::lcm<std::int64_t>(std::max(spec.hit_granularity, 1), spec.block_size);
  const std::int64_t end = std::min(num_hit_tokens, num_tokens - 1);
  return static_cast<std::int32_t>(end - end % granule);
}

std::int32_t first_token_after_hit(const CacheSpec& spec, std::int32_t num_cached_tokens) {
  return std::max(num_cached_tokens - spec.replay_tokens, 0);
}

}  // namespace thalweg::kv_cache
