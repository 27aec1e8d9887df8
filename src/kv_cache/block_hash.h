// Names the content of a full block: a keyed hash chained over everything before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace thalweg::kv_cache {

struct BlockHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

struct BlockHashHasher {
  std::size_t operator()(const BlockHash& hash) const { return hash.low; }
};

/// XXH3-128 keyed with a secret of this process, so that nobody outside can aim at a collision.
/// Equal hashes are taken to mean equal tokens, equal positions and equal salt. Any thread.
class BlockHasher {
 public:
  /// From the system's random source.
  BlockHasher();
  /// For simulations: the same hashes in every run.
  explicit BlockHasher(std::uint64_t secret_seed);

  /// The parent of a sequence's first block.
  BlockHash root(std::string_view cache_salt) const;
  /// Of the full block `token_ids` that follows `parent`.
  BlockHash next(const BlockHash& parent, std::span<const std::int32_t> token_ids) const;

 private:
  BlockHash digest(const void* bytes, std::size_t size) const;

  std::array<std::byte, 192> secret_;
};

}  // namespace thalweg::kv_cache
