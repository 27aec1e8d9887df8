// Inverse frequencies of the rotations. Written after the papers and the conventions of the published checkpoints.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/rope/rope.h"

namespace thalweg::kernels {
namespace {

double inverse_frequency(std::int32_t rope_dim, double base, std::int32_t pair) {
  return std::pow(base, -2.0 * pair / rope_dim);
}

template <typename Scale>
RopeFrequencies make_frequencies(std::int32_t rope_dim, double base, Scale scale) {
  CHECK_GT(rope_dim, 0);
  CHECK_EQ(rope_dim % 2, 0);
  RopeFrequencies result;
  for (std::int32_t pair = 0; pair < rope_dim / 2; ++pair) {
    result.inverse.push_back(static_cast<float>(scale(pair, inverse_frequency(rope_dim, base, pair))));
  }
  return result;
}

/// The pair (as a real number) that turns `rotations` times over the original context.
double pair_of_rotations(std::int32_t rope_dim, double base, double original_max_position, double rotations) {
  return rope_dim * std::log(original_max_position / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(base));
}

}  // namespace

RopeFrequencies rope_default(std::int32_t rope_dim, double base) {
  return make_frequencies(rope_dim, base, [](std::int32_t, double frequency) { return frequency; });
}

RopeFrequencies rope_linear(std::int32_t rope_dim, double base, double factor) {
  return make_frequencies(rope_dim, base, [&](std::int32_t, double frequency) { return frequency / factor; });
}

RopeFrequencies rope_llama3(std::int32_t rope_dim, double base, double factor, double low_freq_factor,
                            double high_freq_factor, std::int32_t original_max_position) {
  return make_frequencies(rope_dim, base, [&](std::int32_t, double frequency) {
    const double turns = original_max_position * frequency / (2.0 * std::numbers::pi);  // over the original context
    const double kept = std::clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0);
    return kept * frequency + (1.0 - kept) * frequency / factor;
  });
}

RopeFrequencies rope_yarn(std::int32_t rope_dim, double base, double factor, std::int32_t original_max_position,
                          double beta_fast, double beta_slow, double attention_factor) {
  // Pairs up to `first` turn often and are kept, from `last` on they are divided by `factor`.
  const double first = std::max(0.0, std::floor(pair_of_rotations(rope_dim, base, original_max_position, beta_fast)));
  double last =
      std::min(rope_dim - 1.0, std::ceil(pair_of_rotations(rope_dim, base, original_max_position, beta_slow)));
  if (first == last) last += 0.001;
  RopeFrequencies result = make_frequencies(rope_dim, base, [&](std::int32_t pair, double frequency) {
    const double divided = std::clamp((pair - first) / (last - first), 0.0, 1.0);
    return (1.0 - divided) * frequency + divided * frequency / factor;
  });
  const double magnitude = attention_factor > 0.0 ? attention_factor
                           : factor > 1.0         ? 0.1 * std::log(factor) + 1.0
                                                  : 1.0;
  result.magnitude = static_cast<float>(magnitude);
  return result;
}

}  // namespace thalweg::kernels
