// Temperature, min_p, top_k, top_p and the draw itself.
//
// All filters keep a prefix of one order (larger logit first, ties by the lower id), so a whole row needs no sorting:
// the weights that are kept stay in place and one number picks among their running sums.
#pragma once

#include <cstdint>
#include <span>

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

/// Draws an id with `u` in [0, 1). `scratch.maxima` holds the row's block maxima.
/// Precondition: no NaN or plus infinity, at least one finite value.
std::int32_t draw_from_row(const RowLoops& loops, std::span<const float> row, const DrawParams& params, double u,
                           RowScratch& scratch);

/// The same among `scratch.candidates`, which are finite, not empty and in the order of ids.
std::int32_t draw_from_candidates(const DrawParams& params, double u, RowScratch& scratch);

}  // namespace thalweg::sampling
