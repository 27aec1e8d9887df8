#include "kernels/engram/numpy_random.h"

#include <array>
#include <bit>

#include "base/check.h"

namespace thalweg::kernels::engram {
namespace {

// Constants of NumPy's SeedSequence, which is O'Neill's replacement of std::seed_seq
// (https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html).
constexpr std::uint32_t kPoolStart = 0x43b0d7e5;
constexpr std::uint32_t kPoolMultiplier = 0x931e8875;
constexpr std::uint32_t kStateStart = 0x8b51f9dd;
constexpr std::uint32_t kStateMultiplier = 0x58f38ded;
constexpr std::uint32_t kMixLeft = 0xca01f9dd;
constexpr std::uint32_t kMixRight = 0x4973f715;
constexpr std::size_t kPoolSize = 4;

/// A hash whose constant changes with each use.
struct RollingHash {
  std::uint32_t constant;
  std::uint32_t multiplier;

  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> 16;
  }
};

std::uint32_t mix(std::uint32_t left, std::uint32_t right) {
  const std::uint32_t mixed = kMixLeft * left - kMixRight * right;
  return mixed ^ mixed >> 16;
}

/// SeedSequence(seed).generate_state(4, uint64)
std::array<std::uint64_t, 4> seed_state(std::uint64_t seed) {
  RollingHash hash{kPoolStart, kPoolMultiplier};
  std::array<std::uint32_t, kPoolSize> pool{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::uint32_t& word : pool) word = hash(word);
  for (std::size_t from = 0; from < kPoolSize; ++from) {
    for (std::size_t to = 0; to < kPoolSize; ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  hash = {kStateStart, kStateMultiplier};
  std::array<std::uint64_t, 4> state;
  for (std::size_t i = 0; i < state.size(); ++i) {
    const std::uint64_t low = hash(pool[2 * i % kPoolSize]);
    const std::uint64_t high = hash(pool[(2 * i + 1) % kPoolSize]);
    state[i] = high << 32 | low;
  }
  return state;
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint64_t seed) {
  const std::array<std::uint64_t, 4> words = seed_state(seed);
  increment_ = (Word128{words[2]} << 64 | words[3]) << 1 | 1;
  step();
  state_ += Word128{words[0]} << 64 | words[1];
  step();
}

void NumpyRandom::step() {
  constexpr Word128 kMultiplier = Word128{2549297995355413924U} << 64 | 4865540595714422341U;
  state_ = state_ * kMultiplier + increment_;
}

std::uint64_t NumpyRandom::next() {
  step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64);
  const auto low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

std::uint64_t NumpyRandom::next_below(std::uint64_t bound) {
  CHECK_GT(bound, std::uint64_t{1} << 32);
  const std::uint64_t threshold = -bound % bound;  // 2^64 mod bound: low halves below it would favour some results
  Word128 product = Word128{next()} * bound;
  while (static_cast<std::uint64_t>(product) < threshold) product = Word128{next()} * bound;
  return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace thalweg::kernels::engram
