// One channel at a time: the reference, and the last channels of the versions that take several at once. Internal
// linkage, so that no other file shares code compiled for an instruction set.
#pragma once

#include <cstdint>

#include "kernels/linear/always_inline.h"
#include "kernels/mhc/versions.h"

namespace thalweg::kernels::mhc {
namespace {

constexpr int kNumPartialSums = 16;

/// Adds columns [first, last) to the partial sums.
THALWEG_INLINE void dot_columns(const float* row, const float* x, std::int64_t first, std::int64_t last,
                                float* partial_sums) {
  for (std::int64_t k = first; k < last; ++k) {
    float& sum = partial_sums[k % kNumPartialSums];
    sum = __builtin_fmaf(row[k], x[k], sum);
  }
}

THALWEG_INLINE float add_partial_sums(float* partial_sums) {
  for (int apart = kNumPartialSums / 2; apart > 0; apart /= 2) {
    for (int i = 0; i < apart; ++i) partial_sums[i] += partial_sums[i + apart];
  }
  return partial_sums[0];
}

/// To nearest even; a NaN stays one.
THALWEG_INLINE float rounded_to_bf16(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    bits |= 0x400000U;
  } else {
    bits += 0x7fffU + ((bits >> 16) & 1U);
  }
  bits &= 0xffff0000U;
  __builtin_memcpy(&value, &bits, sizeof(bits));
  return value;
}

THALWEG_INLINE void collapse_channels(const float* x, const float* pre, int num_streams, std::int64_t hidden_size,
                                      bool rounds_bf16, float* out, std::int64_t first) {
  for (std::int64_t c = first; c < hidden_size; ++c) {
    float sum = 0.0F;
    for (int j = 0; j < num_streams; ++j) sum = __builtin_fmaf(pre[j], x[j * hidden_size + c], sum);
    out[c] = rounds_bf16 ? rounded_to_bf16(sum) : sum;
  }
}

THALWEG_INLINE void expand_channels(const float* sublayer, const float* post, const float* comb, int num_streams,
                                    std::int64_t hidden_size, bool rounds_bf16, float* x, std::int64_t first) {
  for (std::int64_t c = first; c < hidden_size; ++c) {
    float sources[kMaxStreams];
    for (int j = 0; j < num_streams; ++j) sources[j] = x[j * hidden_size + c];
    for (int k = 0; k < num_streams; ++k) {
      float sum = post[k] * sublayer[c];
      for (int j = 0; j < num_streams; ++j) sum = __builtin_fmaf(comb[j * num_streams + k], sources[j], sum);
      x[k * hidden_size + c] = rounds_bf16 ? rounded_to_bf16(sum) : sum;
    }
  }
}

}  // namespace
}  // namespace thalweg::kernels::mhc
