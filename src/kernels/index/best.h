// The best of many scores.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>

namespace thalweg::kernels::index {

/// A score as a whole number of the same order. 0: nothing, what NaN and minus infinity are.
using Rank = std::uint32_t;

inline constexpr Rank kFirstRank = std::numeric_limits<Rank>::max();  // before every score

inline Rank rank_of(float score) {
  if (!(score > -std::numeric_limits<float>::infinity())) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // no negative zero
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}

/// Writes the places of the `count` highest ranks, rising, and returns how many there are: ranks of 0 are nobody's. Of
/// equal ranks the lower places are taken.
std::int32_t find_best(std::span<const Rank> ranks, std::int32_t count, std::int32_t* places);

}  // namespace thalweg::kernels::index
