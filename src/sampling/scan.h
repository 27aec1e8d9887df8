// The first look at a row.
#pragma once

#include <algorithm>
#include <limits>
#include <span>

#include "sampling/row_loops.h"
#include "sampling/row_scratch.h"

namespace thalweg::sampling {

/// Fills `scratch.maxima`. False if the row cannot be drawn from: NaN, plus infinity, or nothing finite.
inline bool scan_row(const RowLoops& loops, std::span<const float> row, RowScratch& scratch) {
  const auto n = static_cast<std::int32_t>(row.size());
  scratch.maxima.resize(static_cast<std::size_t>(num_row_blocks(n)));
  if (!loops.block_maxima(row.data(), n, scratch.maxima.data())) return false;
  return *std::max_element(scratch.maxima.begin(), scratch.maxima.end()) >= std::numeric_limits<float>::lowest();
}

}  // namespace thalweg::sampling
