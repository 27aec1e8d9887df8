// The loops over a whole row of logits. Everything else in sampling works on a few candidates.
//
// Both versions are compiled from one source over eight lanes in a fixed order of sums, without fused operations: their
// results are equal bit by bit, on every machine.
#pragma once

#include <cstdint>

#include "device/stream.h"

namespace thalweg::sampling {

/// Values that share one entry of the arrays per block; the last block of a row may be shorter.
inline constexpr std::int32_t kRowBlock = 128;
constexpr std::int32_t num_row_blocks(std::int32_t num_values) { return (num_values + kRowBlock - 1) / kRowBlock; }

/// Mass and number of the values that pass a threshold.
struct RowMass {
  double mass = 0.0;
  std::int32_t count = 0;
};

struct RowLoops {
  /// maxima: [num_row_blocks(n)]. False if a value is NaN or plus infinity; minus infinity is a value
  /// that is never drawn.
  bool (*block_maxima)(const float* row, std::int32_t n, float* maxima);

  /// Sum of exp(row[i] - max).
  double (*exp_sum)(const float* row, std::int32_t n, float max);

  /// weights[i] = exp((row[i] - max) * scale), 0 where that is below `min_weight`;
  /// sums: [num_row_blocks(n)].
  void (*weigh)(const float* row, std::int32_t n, float max, float scale, float min_weight, float* weights,
                float* sums);

  /// The weights of values >= threshold.
  RowMass (*mass_from)(const float* row, const float* weights, std::int32_t n, float threshold);

  /// Zeroes the weights of values below `value`, and of those equal to it behind index `last`;
  /// renews the sums.
  void (*cut_weights)(const float* row, std::int32_t n, float value, std::int32_t last, float* weights, float* sums);

  /// Number of values greater than `value`, and of those equal to it before index `index`.
  std::int32_t (*count_before)(const float* row, std::int32_t n, float value, std::int32_t index);
};

/// The fastest version for that level.
const RowLoops& row_loops(device::CpuLevel level);

/// exp(x) for x <= 0 exactly as `weigh` computes it: below -87 it is 0.
float row_exp(float x);

const RowLoops& portable_row_loops();
const RowLoops& avx2_row_loops();

}  // namespace thalweg::sampling
