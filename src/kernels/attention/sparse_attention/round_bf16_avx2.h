// Eight values rounded to bf16, as device::bf16_from_float does. For files compiled for AVX2.
#pragma once

#include <immintrin.h>

namespace thalweg::kernels {
namespace {

inline __m256 round_bf16_avx2(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i high = _mm256_and_si256(rounded, _mm256_set1_epi32(-0x10000));
  return _mm256_blendv_ps(_mm256_castsi256_ps(high), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

}  // namespace
}  // namespace thalweg::kernels
