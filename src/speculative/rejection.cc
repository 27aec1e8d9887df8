#include "speculative/rejection.h"

#include <algorithm>

#include "sampling/race.h"

namespace thalweg::speculative {
namespace {

/// Turns weights of P into those of max(P - Q, 0); false if nothing is left.
bool subtract(std::int32_t draft, const float* q, double total, sampling::RowScratch& scratch) {
  const auto n = scratch.weights.size();
  if (q == nullptr) scratch.weights[static_cast<std::size_t>(draft)] = 0.0F;
  bool any = false;
  for (std::size_t b = 0; b < scratch.sums.size(); ++b) {
    const std::size_t first = b * sampling::kRowBlock;
    const std::size_t end = std::min(first + sampling::kRowBlock, n);
    float sum = 0.0F;
    for (std::size_t i = first; i < end; ++i) {
      float& weight = scratch.weights[i];
      if (q != nullptr) weight = std::max(0.0F, static_cast<float>(weight - q[i] * total));
      sum += weight;
    }
    scratch.sums[b] = sum;
    any = any || sum > 0.0F;
  }
  return any;
}

}  // namespace

Verdict reject_or_accept(std::int32_t draft, const float* q, sampling::RowScratch& scratch, double total,
                         const RejectionKeys& keys) {
  const double p_of_draft = scratch.weights[static_cast<std::size_t>(draft)] / total;
  const double q_of_draft = q == nullptr ? 1.0 : q[draft];
  if (sampling::uniform(keys.acceptance) * q_of_draft < p_of_draft) return {draft, true};
  // Where rounding alone made P less than Q there may be nothing to take instead.
  if (!subtract(draft, q, total, scratch)) return {draft, true};
  return {sampling::race_row(keys.residual, scratch.weights, scratch.sums), false};
}

}  // namespace thalweg::speculative
