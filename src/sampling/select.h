// Finds the best values of a row without sorting it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/row_scratch.h"

namespace thalweg::sampling {

/// A value that at least `k` values of the row reach: the k-th largest block maximum. Minus infinity
/// when there are fewer blocks.
float threshold_of(std::span<const float> maxima, std::int32_t k, std::vector<float>& order);

/// The values in [low, high), in the order of ids; minus infinity is never among them.
void collect(std::span<const float> row, std::span<const float> maxima, float low, float high,
             std::vector<Candidate>& out);

/// The `k` best values, best first; fewer when fewer are finite.
void select_top(std::span<const float> row, std::span<const float> maxima, std::int32_t k, std::vector<float>& order,
                std::vector<Candidate>& out);

/// Keeps the `k` best, best first.
void keep_top(std::vector<Candidate>& candidates, std::int32_t k);

/// The lowest id with the largest value. Precondition: no NaN.
std::int32_t arg_max(std::span<const float> row, std::span<const float> maxima);

}  // namespace thalweg::sampling
