#include "sampling/select.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "sampling/row_loops.h"

namespace thalweg::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

float threshold_of(std::span<const float> maxima, std::int32_t k, std::vector<float>& order) {
  if (k > static_cast<std::int32_t>(maxima.size())) return -kInfinity;
  order.assign(maxima.begin(), maxima.end());
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), std::greater<>());
  return order[static_cast<std::size_t>(k - 1)];
}

void collect(std::span<const float> row, std::span<const float> maxima, float low, float high,
             std::vector<Candidate>& out) {
  out.clear();
  low = std::max(low, std::numeric_limits<float>::lowest());
  const auto n = static_cast<std::int32_t>(row.size());
  for (std::int32_t block = 0; block < static_cast<std::int32_t>(maxima.size()); ++block) {
    if (maxima[static_cast<std::size_t>(block)] < low) continue;
    const std::int32_t end = std::min(n, (block + 1) * kRowBlock);
    for (std::int32_t i = block * kRowBlock; i < end; ++i) {
      const float value = row[static_cast<std::size_t>(i)];
      if (value >= low && value < high) out.push_back({value, i});
    }
  }
}

void keep_top(std::vector<Candidate>& candidates, std::int32_t k) {
  if (k < static_cast<std::int32_t>(candidates.size())) {
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), better);
    candidates.resize(static_cast<std::size_t>(k));
  }
  std::sort(candidates.begin(), candidates.end(), better);
}

void select_top(std::span<const float> row, std::span<const float> maxima, std::int32_t k, std::vector<float>& order,
                std::vector<Candidate>& out) {
  out.clear();
  if (k <= 0) return;
  collect(row, maxima, threshold_of(maxima, k, order), kInfinity, out);
  keep_top(out, k);
}

std::int32_t arg_max(std::span<const float> row, std::span<const float> maxima) {
  const auto block = std::max_element(maxima.begin(), maxima.end()) - maxima.begin();
  const auto first = row.begin() + block * kRowBlock;
  return static_cast<std::int32_t>(std::find(first, row.end(), maxima[static_cast<std::size_t>(block)]) - row.begin());
}

}  // namespace thalweg::sampling
