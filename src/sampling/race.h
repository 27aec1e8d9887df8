// Draws from weights by exponential race, which is Gumbel-max told without logarithms of weights: every index runs for
// a time of -log(1 - x) / weight, x uniform and its own, and the first one wins; index i wins with a probability of
// weight[i] / (sum of weights).
//
// What makes it the draw of an engine that speculates is that an index keeps its x whatever the weights are: two draws
// from similar weights by the same key mostly have the same winner (docs/decisions/0016-acceptance.md).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "sampling/philox.h"
#include "sampling/row_loops.h"

namespace thalweg::sampling {

class Race {
 public:
  explicit Race(const DrawKey& key) : key_(key) {}

  /// Rising indices are cheapest: four share one call of the generator.
  void enter(std::uint32_t index, double weight) {
    if (!(weight > 0.0)) return;
    if (index / 4 != group_) {
      group_ = index / 4;
      words_ = random_words(key_, group_);
    }
    const double x = (static_cast<double>(words_[index % 4]) + 0.5) * 0x1.0p-32;
    if (x >= best_ * weight) return;  // -log(1 - x) is never less than x
    const double time = -std::log1p(-x) / weight;
    if (time >= best_) return;
    best_ = time;
    winner_ = index;
  }

  /// Precondition: one of the weights was positive.
  std::uint32_t winner() const { return winner_; }

 private:
  const DrawKey key_;
  std::uint32_t group_ = std::numeric_limits<std::uint32_t>::max();
  std::array<std::uint32_t, 4> words_{};
  double best_ = std::numeric_limits<double>::infinity();
  std::uint32_t winner_ = 0;
};

/// Blocks of a row race by numbers of their own, which no id uses.
inline constexpr std::uint32_t kFirstBlockIndex = std::uint32_t{1} << 31;

inline std::size_t race_blocks(const DrawKey& key, std::span<const float> sums) {
  Race blocks(key);
  for (std::size_t b = 0; b < sums.size(); ++b) blocks.enter(kFirstBlockIndex + static_cast<std::uint32_t>(b), sums[b]);
  return blocks.winner() - kFirstBlockIndex;
}

/// A race of the row's blocks and then one within the block that won, so a row takes a few hundred numbers and not one
/// per id. `sums` [num_row_blocks(n)] are the sums of `weights` [n] per block.
inline std::int32_t race_row(const DrawKey& key, std::span<const float> weights, std::span<const float> sums) {
  const std::size_t first = race_blocks(key, sums) * kRowBlock;
  const std::size_t end = std::min(first + kRowBlock, weights.size());
  Race ids(key);
  for (std::size_t i = first; i < end; ++i) ids.enter(static_cast<std::uint32_t>(i), weights[i]);
  return static_cast<std::int32_t>(ids.winner());
}

}  // namespace thalweg::sampling
