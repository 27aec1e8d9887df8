// Eight lanes. For files compiled for AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/attention/paged_attention/tiles.h"

namespace thalweg::kernels::attention {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int kWidth = 8;

  /// With R rows, so that sums fill the 16 registers but a few and the adders' latency is covered.
  template <int R>
  static constexpr int vectors_in_flight() {
    return R == 1 ? 8 : R <= 3 ? 4 : 2;
  }

  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static Vector load(const F16* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Vector load(const BF16* from) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
  static void store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  static Vector set(float x) { return _mm256_set1_ps(x); }
  static float first(Vector x) { return _mm256_cvtss_f32(x); }

  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector maximum(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector round(Vector x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static Vector add_to_exponent(Vector x, Vector whole) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shifted));
  }
  /// `y`, and 0 where x < limit.
  static Vector zero_below(Vector x, float limit, Vector y) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ), y);
  }
  /// `x` in the lanes [first, last), `other` in the rest.
  static Vector keep_lanes(Vector x, std::int32_t first, std::int32_t last, float other) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i early = _mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane);
    const __m256i in_time = _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane);
    return _mm256_blendv_ps(_mm256_set1_ps(other), x, _mm256_castsi256_ps(_mm256_andnot_si256(early, in_time)));
  }

  static float reduce_maximum(Vector x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  static float reduce_add(Vector x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }

  static void zero8(float* to) { _mm256_storeu_ps(to, _mm256_setzero_ps()); }
  static void copy8(float* to, const float* from) { _mm256_storeu_ps(to, _mm256_loadu_ps(from)); }

  /// Eight values in the cache's type, rounded to nearest even.
  static void narrow8(float* to, const float* from) { copy8(to, from); }
  static void narrow8(F16* to, const float* from) {
    const __m128i codes = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), codes);
  }
  static void narrow8(BF16* to, const float* from) {
    const __m256 x = _mm256_loadu_ps(from);
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i codes = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    codes = _mm256_blendv_epi8(codes, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    codes = _mm256_srli_epi32(codes, 16);
    codes = _mm256_permute4x64_epi64(_mm256_packus_epi32(codes, codes), 0b1000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(codes));
  }
};

}  // namespace
}  // namespace thalweg::kernels::attention
