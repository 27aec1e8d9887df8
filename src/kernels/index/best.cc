#include "kernels/index/best.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace thalweg::kernels::index {
namespace {

/// Ranks above `rank` are taken, and so many that equal it.
struct Threshold {
  Rank rank = 0;
  std::int64_t num_equal = 0;
};

/// By the upper bits first, whose counts tell which ranks are worth a closer look. Precondition: 0 < count <
/// ranks.size().
Threshold find_threshold(std::span<const Rank> ranks, std::int64_t count) {
  constexpr int kShift = 21;
  std::uint32_t counts[1 << (32 - kShift)] = {};
  for (const Rank rank : ranks) ++counts[rank >> kShift];
  std::int64_t num_above = 0;
  Rank bin = (1 << (32 - kShift)) - 1;
  for (; bin > 0 && num_above + counts[bin] < count; --bin) num_above += counts[bin];

  std::vector<Rank> close;
  close.reserve(counts[bin]);
  for (const Rank rank : ranks) {
    if (rank >> kShift == bin) close.push_back(rank);
  }
  const auto last = close.begin() + (count - num_above - 1);
  std::ranges::nth_element(close, last, std::greater());
  const auto num_better = std::ranges::count_if(close, [&](Rank rank) { return rank > *last; });
  return {.rank = *last, .num_equal = count - num_above - num_better};
}

}  // namespace

std::int32_t find_best(std::span<const Rank> ranks, std::int32_t count, std::int32_t* places) {
  Threshold threshold;
  if (static_cast<std::int64_t>(ranks.size()) > count) threshold = find_threshold(ranks, count);
  if (threshold.rank == 0) threshold.num_equal = 0;
  std::int32_t num_found = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < threshold.rank || (ranks[i] == threshold.rank && threshold.num_equal == 0)) continue;
    threshold.num_equal -= ranks[i] == threshold.rank;
    places[num_found++] = static_cast<std::int32_t>(i);
  }
  return num_found;
}

}  // namespace thalweg::kernels::index
