// Temperature, min_p, top_k, top_p and the draw itself.
//
// All filters keep a prefix of one order (larger logit first, ties by the lower id), so a whole row needs no sorting:
// the weights that are kept stay in place and a race (race.h) picks among them.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/philox.h"
#include "sampling/row_loops.h"
#include "sampling/row_scratch.h"

namespace thalweg::sampling {

/// At the lowest temperature below which nothing changes any more a difference of 1e-4 between two
/// logits already is a factor of e^100.
inline constexpr float kLowestTemperature = 1e-6F;

struct DrawParams {
  float temperature = 1.0F;  // > 0
  std::int32_t top_k = 0;    // 0: off
  float top_p = 1.0F;        // keeps the smallest set of at least that mass, and never less than one
  float min_p = 0.0F;        // keeps what has at least that share of the best one's probability
};

/// Where a filter has left what may be drawn, as weights that need not sum to one.
enum class Kept : std::uint8_t {
  kRow,         // in scratch.weights, 0 where excluded, and per block in scratch.sums
  kCandidates,  // in scratch.candidates and scratch.candidate_weights
};

/// Filters a row. `scratch.maxima` holds its block maxima.
/// Precondition: no NaN or plus infinity, at least one finite value.
Kept filter_row(const RowLoops& loops, std::span<const float> row, const DrawParams& params, RowScratch& scratch);

/// The same for `scratch.candidates`, which are finite and not empty.
Kept filter_candidates(const DrawParams& params, RowScratch& scratch);

/// Draws an id. What was kept where makes no difference to which.
std::int32_t draw_kept(Kept kept, const DrawKey& key, RowScratch& scratch);

/// Lays candidates out as a row of `n`; returns the sum of the weights.
double spread_kept(Kept kept, std::int32_t n, RowScratch& scratch);

}  // namespace thalweg::sampling
