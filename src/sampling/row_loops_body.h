// The source of both versions of RowLoops; included by row_loops_portable.cc and row_loops_avx2.cc alone. It uses no
// standard header with code, so that no inline function compiled for AVX2 leaks into the rest of the program.
#include <cstdint>

#include "sampling/row_loops.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // the vectors never cross a border between objects

namespace thalweg::sampling {
namespace {

constexpr int kLanes = 8;
constexpr int kVectors = kRowBlock / kLanes;
constexpr float kMinusInfinity = -__builtin_inff();
constexpr float kExpFloor = -87.0F;

using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
using LooseFloats = float __attribute__((vector_size(32), aligned(4), may_alias));

#define THALWEG_INLINE [[gnu::always_inline]] inline

THALWEG_INLINE Floats load(const float* p) { return *reinterpret_cast<const LooseFloats*>(p); }
THALWEG_INLINE void store(float* p, const Floats& v) { *reinterpret_cast<LooseFloats*>(p) = v; }
THALWEG_INLINE Floats all(float x) { return Floats{x, x, x, x, x, x, x, x}; }
THALWEG_INLINE Floats max_of(const Floats& a, const Floats& b) { return a > b ? a : b; }

THALWEG_INLINE float sum_of(const Floats& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
THALWEG_INLINE std::int32_t sum_of(const Ints& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
THALWEG_INLINE float max_of(const Floats& v) {
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  return larger(larger(larger(v[0], v[4]), larger(v[2], v[6])), larger(larger(v[1], v[5]), larger(v[3], v[7])));
}

/// exp of x <= 0, error below 2 units in the last place, exp(0) == 1: x = n ln 2 + r, a polynomial in r, and n added to
/// the exponent bits.
THALWEG_INLINE Floats exp_of(const Floats& argument) {
  const Floats floor = all(kExpFloor);
  const Ints kept = argument >= floor;
  const Floats x = kept ? argument : floor;
  const Floats magic = all(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * all(1.44269504F) + magic;
  const Floats n = shifted - magic;
  Floats r = x - n * all(0.693359375F);
  r = r - n * all(-2.12194440e-4F);
  Floats p = all(1.9875691500e-4F);
  p = p * r + all(1.3981999507e-3F);
  p = p * r + all(8.3334519073e-3F);
  p = p * r + all(4.1665795894e-2F);
  p = p * r + all(1.6666665459e-1F);
  p = p * r + all(5.0000001201e-1F);
  p = p * (r * r) + r + all(1.0F);
  const Ints exponent = (reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic)) << 23;
  const Floats scaled = reinterpret_cast<Floats>(reinterpret_cast<Ints>(p) + exponent);
  return kept ? scaled : all(0.0F);
}

/// Calls body(block index, pointer to kRowBlock values) for each block; the last one is padded with minus infinity.
template <typename Body>
THALWEG_INLINE void for_each_block(const float* row, std::int32_t n, Body body) {
  const std::int32_t whole = n / kRowBlock;
  for (std::int32_t b = 0; b < whole; ++b) body(b, row + static_cast<std::int64_t>(b) * kRowBlock);
  const std::int32_t rest = n - whole * kRowBlock;
  if (rest == 0) return;
  float padded[kRowBlock];
  for (std::int32_t i = 0; i < kRowBlock; ++i) padded[i] = i < rest ? row[whole * kRowBlock + i] : kMinusInfinity;
  body(whole, static_cast<const float*>(padded));
}

/// The weights of a block; the last one of a row is padded with zeros in `padded`.
THALWEG_INLINE const float* block_weights(const float* weights, std::int32_t n, std::int32_t block, float* padded) {
  const std::int32_t first = block * kRowBlock;
  if (n - first >= kRowBlock) return weights + first;
  for (std::int32_t i = 0; i < kRowBlock; ++i) padded[i] = first + i < n ? weights[first + i] : 0.0F;
  return padded;
}

bool block_maxima(const float* row, std::int32_t n, float* maxima) {
  Ints good = reinterpret_cast<Ints>(all(0.0F)) - 1;
  const Floats largest = all(__FLT_MAX__);
  for_each_block(row, n, [&](std::int32_t block, const float* values) {
    Floats m0 = load(values);
    Floats m1 = load(values + kLanes);
    good &= (m0 <= largest) & (m1 <= largest);
    for (int v = 2; v < kVectors; v += 2) {
      const Floats x0 = load(values + v * kLanes);
      const Floats x1 = load(values + (v + 1) * kLanes);
      good &= (x0 <= largest) & (x1 <= largest);
      m0 = max_of(m0, x0);
      m1 = max_of(m1, x1);
    }
    maxima[block] = max_of(max_of(m0, m1));
  });
  return sum_of(good) == -kLanes;
}

double exp_sum(const float* row, std::int32_t n, float max) {
  double sum = 0.0;
  for_each_block(row, n, [&](std::int32_t, const float* values) {
    Floats lanes = all(0.0F);
    for (int v = 0; v < kVectors; ++v) lanes += exp_of(load(values + v * kLanes) - all(max));
    sum += static_cast<double>(sum_of(lanes));
  });
  return sum;
}

void weigh(const float* row, std::int32_t n, float max, float scale, float min_weight, float* weights, float* sums) {
  for_each_block(row, n, [&](std::int32_t block, const float* values) {
    const std::int32_t first = block * kRowBlock;
    float padded[kRowBlock];
    float* out = n - first >= kRowBlock ? weights + first : padded;
    Floats lanes = all(0.0F);
    for (int v = 0; v < kVectors; ++v) {
      const Floats w = exp_of((load(values + v * kLanes) - all(max)) * all(scale));
      const Floats kept = w >= all(min_weight) ? w : all(0.0F);
      store(out + v * kLanes, kept);
      lanes += kept;
    }
    sums[block] = sum_of(lanes);
    if (out == padded) {
      for (std::int32_t i = 0; first + i < n; ++i) weights[first + i] = padded[i];
    }
  });
}

RowMass mass_from(const float* row, const float* weights, std::int32_t n, float threshold) {
  RowMass found;
  for_each_block(row, n, [&](std::int32_t block, const float* values) {
    float padded[kRowBlock];
    const float* block_w = block_weights(weights, n, block, padded);
    Floats lanes = all(0.0F);
    Ints count = reinterpret_cast<Ints>(all(0.0F));
    for (int v = 0; v < kVectors; ++v) {
      const Ints passes = load(values + v * kLanes) >= all(threshold);
      lanes += passes ? load(block_w + v * kLanes) : all(0.0F);
      count -= passes;
    }
    found.mass += static_cast<double>(sum_of(lanes));
    found.count += sum_of(count);
  });
  return found;
}

void cut_weights(const float* row, std::int32_t n, float value, std::int32_t last, float* weights, float* sums) {
  for_each_block(row, n, [&](std::int32_t block, const float* values) {
    const std::int32_t first = block * kRowBlock;
    float padded[kRowBlock];
    const float* block_w = block_weights(weights, n, block, padded);
    float* out = n - first >= kRowBlock ? weights + first : padded;
    Floats lanes = all(0.0F);
    Ints index = Ints{0, 1, 2, 3, 4, 5, 6, 7} + first;
    for (int v = 0; v < kVectors; ++v) {
      const Floats x = load(values + v * kLanes);
      const Ints kept = (x > all(value)) | ((x == all(value)) & (index <= last));
      const Floats w = kept ? load(block_w + v * kLanes) : all(0.0F);
      store(out + v * kLanes, w);
      lanes += w;
      index += kLanes;
    }
    sums[block] = sum_of(lanes);
    if (out == padded) {
      for (std::int32_t i = 0; first + i < n; ++i) weights[first + i] = padded[i];
    }
  });
}

std::int32_t count_before(const float* row, std::int32_t n, float value, std::int32_t index) {
  Ints count = reinterpret_cast<Ints>(all(0.0F));
  for_each_block(row, n, [&](std::int32_t block, const float* values) {
    Ints here = Ints{0, 1, 2, 3, 4, 5, 6, 7} + block * kRowBlock;
    for (int v = 0; v < kVectors; ++v) {
      const Floats x = load(values + v * kLanes);
      count -= (x > all(value)) | ((x == all(value)) & (here < index));
      here += kLanes;
    }
  });
  return sum_of(count);
}

constexpr RowLoops kRowLoops{block_maxima, exp_sum, weigh, mass_from, cut_weights, count_before};

}  // namespace
}  // namespace thalweg::sampling
