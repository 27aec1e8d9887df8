#include "kv_cache/block_hash.h"

#include <cstring>
#include <random>
#include <vector>

#include "base/check.h"

#define XXH_STATIC_LINKING_ONLY  // XXH3_generateSecret
#include <xxhash.h>

namespace thalweg::kv_cache {
namespace {

constexpr std::size_t kSmallBlockTokens = 256;

}  // namespace

BlockHasher::BlockHasher() {
  std::random_device device;
  std::array<std::uint32_t, 16> seed;
  for (std::uint32_t& word : seed) word = device();
  CHECK_EQ(XXH3_generateSecret(secret_.data(), secret_.size(), seed.data(), sizeof(seed)), XXH_OK);
}

BlockHasher::BlockHasher(std::uint64_t secret_seed) {
  CHECK_EQ(XXH3_generateSecret(secret_.data(), secret_.size(), &secret_seed, sizeof(secret_seed)), XXH_OK);
}

BlockHash BlockHasher::digest(const void* bytes, std::size_t size) const {
  const XXH128_hash_t hash = XXH3_128bits_withSecret(bytes, size, secret_.data(), secret_.size());
  return {hash.low64, hash.high64};
}

BlockHash BlockHasher::root(std::string_view cache_salt) const { return digest(cache_salt.data(), cache_salt.size()); }

BlockHash BlockHasher::next(const BlockHash& parent, std::span<const std::int32_t> token_ids) const {
  std::array<std::byte, sizeof(BlockHash) + kSmallBlockTokens * sizeof(std::int32_t)> small;
  std::vector<std::byte> large;
  const std::size_t size = sizeof(BlockHash) + token_ids.size_bytes();
  std::byte* bytes = small.data();
  if (size > small.size()) {
    large.resize(size);
    bytes = large.data();
  }
  std::memcpy(bytes, &parent, sizeof(parent));
  std::memcpy(bytes + sizeof(parent), token_ids.data(), token_ids.size_bytes());
  return digest(bytes, size);
}

}  // namespace thalweg::kv_cache
