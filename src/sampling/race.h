// Draws from weights by exponential race, which is Gumbel-max told without logarithms of weights: every index runs for
// a time of -log(1 - x) / weight, x uniform and its own, and the first one wins; index i wins with a probability of
// weight[i] / (sum of weights).
//
// What makes it the draw of an engine that speculates is that an index keeps its x whatever the weights are: two draws
// from similar weights by the same key mostly have the same winner (docs/decisions/0017-acceptance.md).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

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

  /// Infinite before anybody has entered.
  double best_time() const { return best_; }
  /// Precondition: one of the weights was positive.
  std::uint32_t winner() const { return winner_; }

 private:
  const DrawKey key_;
  std::uint32_t group_ = std::numeric_limits<std::uint32_t>::max();
  std::array<std::uint32_t, 4> words_{};
  double best_ = std::numeric_limits<double>::infinity();
  std::uint32_t winner_ = 0;
};

/// A race of a whole row that takes a few hundred numbers and not one per id: ids of some weight run for themselves,
/// the others together as their block, and if a block wins, its ids run among themselves. Two draws agree as often as
/// in a race of all ids, nearly, because what they agree on has weight.
class RowRace {
 public:
  /// `total`: sum of the row's weights.
  RowRace(const DrawKey& key, double total) : heavy_(total / kMaxHeavyIds), ids_(key), blocks_(key), light_ids_(key) {}

  /// Such ids are entered themselves, the others in the sum of their block.
  bool is_heavy(double weight) const { return weight >= heavy_; }
  void enter_id(std::size_t id, double weight) { ids_.enter(static_cast<std::uint32_t>(id), weight); }
  void enter_block(std::size_t block, double light_sum) {
    blocks_.enter(kFirstBlockIndex + static_cast<std::uint32_t>(block), light_sum);
  }

  /// The block whose light ids must be entered now; empty: a heavy id has won.
  std::optional<std::size_t> winning_block() const {
    if (ids_.best_time() <= blocks_.best_time()) return std::nullopt;
    return blocks_.winner() - kFirstBlockIndex;
  }
  void enter_light_id(std::size_t id, double weight) {
    if (!is_heavy(weight)) light_ids_.enter(static_cast<std::uint32_t>(id), weight);
  }

  std::int32_t winner() const {
    return static_cast<std::int32_t>(winning_block() ? light_ids_.winner() : ids_.winner());
  }

 private:
  static constexpr double kMaxHeavyIds = 16384;
  /// Blocks run by numbers of their own, which no id uses.
  static constexpr std::uint32_t kFirstBlockIndex = std::uint32_t{1} << 31;

  const double heavy_;
  Race ids_;
  Race blocks_;
  Race light_ids_;
};

/// `sums` [num_row_blocks(n)] are the sums of `weights` [n] per block.
inline std::int32_t race_row(const DrawKey& key, std::span<const float> weights, std::span<const float> sums) {
  double total = 0.0;
  for (const float sum : sums) total += sum;
  RowRace race(key, total);
  const auto block_of = [&](std::size_t b) {
    const std::size_t first = b * kRowBlock;
    return std::pair(first, std::min(first + kRowBlock, weights.size()));
  };
  for (std::size_t b = 0; b < sums.size(); ++b) {
    double light_sum = sums[b];
    if (race.is_heavy(light_sum)) {
      light_sum = 0.0;
      const auto [first, end] = block_of(b);
      for (std::size_t i = first; i < end; ++i) {
        if (race.is_heavy(weights[i])) {
          race.enter_id(i, weights[i]);
        } else {
          light_sum += weights[i];
        }
      }
    }
    race.enter_block(b, light_sum);
  }
  if (const auto block = race.winning_block()) {
    const auto [first, end] = block_of(*block);
    for (std::size_t i = first; i < end; ++i) race.enter_light_id(i, weights[i]);
  }
  return race.winner();
}

}  // namespace thalweg::sampling
