#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/engram/engram.h"
#include "kernels/engram/numpy_random.h"

namespace thalweg::kernels {
namespace {

constexpr std::int64_t kSeedPerLayer = 10007;

/// Odd, and so small that the product with a class is an int64.
std::vector<std::int64_t> draw_multipliers(const EngramConfig& config, std::int32_t layer) {
  const std::int64_t bound = std::numeric_limits<std::int64_t>::max() / config.compressed_vocab_size / 2;
  engram::NumpyRandom random(static_cast<std::uint64_t>(kSeedPerLayer * layer));
  std::vector<std::int64_t> multipliers;
  for (std::int32_t i = 0; i < config.max_ngram_size; ++i) {
    multipliers.push_back(static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(bound))) * 2 + 1);
  }
  return multipliers;
}

/// By trial: a few hundred candidates of 24 bits.
bool is_prime(std::int64_t n) {
  if (n < 2) return false;
  for (std::int64_t divisor = 2; divisor * divisor <= n; ++divisor) {
    if (n % divisor == 0) return false;
  }
  return true;
}

std::int64_t next_prime(std::int64_t after) {
  do ++after;
  while (!is_prime(after));
  return after;
}

}  // namespace

std::vector<EngramHash> make_engram_hashes(const EngramConfig& config) {
  CHECK_GE(config.max_ngram_size, 2);
  CHECK_GT(config.num_heads, 0);
  CHECK_GT(config.min_vocab_size, 0);
  CHECK_GT(config.compressed_vocab_size, 0);
  const std::int32_t num_tables = (config.max_ngram_size - 1) * config.num_heads;
  std::vector<EngramHash> hashes;
  // The released code starts each search anew and passes over primes in use: all tables take primes in rising order.
  std::int64_t prime = config.min_vocab_size - 1;
  for (const std::int32_t layer : config.layer_ids) {
    EngramHash& hash = hashes.emplace_back();
    hash.multipliers = draw_multipliers(config, layer);
    hash.num_heads = config.num_heads;
    hash.pad_class = config.pad_class;
    std::int64_t offset = 0;
    for (std::int32_t table = 0; table < num_tables; ++table) {
      prime = next_prime(prime);
      hash.primes.push_back(prime);
      hash.offsets.push_back(offset);
      offset += prime;
    }
  }
  return hashes;
}

void engram_rows(const EngramHash& hash, std::span<const std::int32_t> classes, std::int64_t* rows) {
  const std::size_t max_ngram_size = hash.multipliers.size();
  CHECK_LE(classes.size(), max_ngram_size);
  std::int64_t mixed = 0;  // never negative: neither are the products
  bool hidden = false;
  std::size_t table = 0;
  for (std::size_t distance = 0; distance < max_ngram_size; ++distance) {
    hidden = hidden || distance >= classes.size() || classes[classes.size() - 1 - distance] == kDeadToken;
    const std::int64_t seen = hidden ? hash.pad_class : classes[classes.size() - 1 - distance];
    mixed ^= seen * hash.multipliers[distance];
    if (distance == 0) continue;  // a token alone is no n-gram
    for (std::int32_t head = 0; head < hash.num_heads; ++head, ++table) {
      rows[table] = mixed % hash.primes[table] + hash.offsets[table];
    }
  }
}

}  // namespace thalweg::kernels
