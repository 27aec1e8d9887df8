// For tests: whether counts can be draws from a distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace thalweg::sampling {

struct ChiSquare {
  double value = 0.0;
  double limit = 0.0;  // exceeded once in a thousand where the counts are such draws
};

/// `probabilities` sum to one. Bins of less than 5 expected draws are put together.
inline ChiSquare chi_square(std::span<const int> counts, std::span<const double> probabilities) {
  double num_draws = 0.0;
  for (const int count : counts) num_draws += count;
  ChiSquare result;
  double rare_expected = 0.0;
  double rare_count = 0.0;
  int num_bins = 0;
  const auto add = [&](double expected, double count) {
    result.value += (count - expected) * (count - expected) / expected;
    ++num_bins;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * num_draws;
    if (expected >= 5.0) {
      add(expected, counts[i]);
    } else {
      rare_expected += expected;
      rare_count += counts[i];
    }
  }
  if (rare_expected >= 5.0) add(rare_expected, rare_count);
  // The upper 0.1 % point by Wilson and Hilferty.
  const double freedom = std::max(1, num_bins - 1);
  const double spread = 2.0 / (9.0 * freedom);
  result.limit = freedom * std::pow(1.0 - spread + 3.09 * std::sqrt(spread), 3.0);
  return result;
}

}  // namespace thalweg::sampling
