// What AVX-512 without and with VNNI share: a tile's 16 rows are one register. Included by their files only.
#pragma once

// GCC 12's own intrinsics read variables they leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/always_inline.h"

namespace thalweg::kernels {
namespace {

struct Avx512Lanes {
  using F = __m512;
  using W = __m512i;

#if defined(THALWEG_EMULATED_AVX512)  // the same templates in fewer sizes: emulation is slow to compile
  static constexpr int kTokens4 = 2;
  static constexpr int kTokens8 = 2;
  static constexpr int kTokensF = 3;
#else
  static constexpr int kTokens4 = 8;
  static constexpr int kTokens8 = 8;
  static constexpr int kTokensF = 12;
#endif

  static THALWEG_INLINE __m256 low_half(F v) { return _mm512_castps512_ps256(v); }
  static THALWEG_INLINE __m256 high_half(F v) { return _mm512_extractf32x8_ps(v, 1); }

  static THALWEG_INLINE F zero() { return _mm512_setzero_ps(); }
  static THALWEG_INLINE F broadcast(float v) { return _mm512_set1_ps(v); }
  static THALWEG_INLINE F multiply(F a, F b) { return _mm512_mul_ps(a, b); }
  static THALWEG_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

  static THALWEG_INLINE __m128i load16(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static THALWEG_INLINE __m256i load32(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static THALWEG_INLINE F load_f32(const std::byte* from) { return _mm512_loadu_ps(from); }
  static THALWEG_INLINE void store_f32(std::byte* to, F v) { _mm512_storeu_ps(to, v); }
  static THALWEG_INLINE F load_f16(const std::byte* from) { return _mm512_cvtph_ps(load32(from)); }
  static THALWEG_INLINE F load_bf16(const std::byte* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(from)), 16));
  }
  static THALWEG_INLINE F float_from_u8(const std::byte* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(from)));
  }

  static THALWEG_INLINE W load_words(const std::byte* from) { return _mm512_loadu_si512(from); }
  static THALWEG_INLINE void store_words(std::byte* to, W words) { _mm512_storeu_si512(to, words); }
  static THALWEG_INLINE W low_nibbles(W words) { return _mm512_and_si512(words, _mm512_set1_epi8(15)); }
  static THALWEG_INLINE W high_nibbles(W words) {
    return _mm512_and_si512(_mm512_srli_epi16(words, 4), _mm512_set1_epi8(15));
  }

  using Sum8 = __m512i;
  static THALWEG_INLINE Sum8 add(Sum8 a, Sum8 b) { return _mm512_add_epi32(a, b); }
  static THALWEG_INLINE Sum8 multiply_by_i8(Sum8 sum, const std::byte* scales) {
    return _mm512_mullo_epi32(sum, _mm512_cvtepi8_epi32(load16(scales)));
  }
  static THALWEG_INLINE F float_from_sum8(Sum8 sum) { return _mm512_cvtepi32_ps(sum); }

  // Without it the compiler turns chains of additions into trees and spills their leaves.
  static THALWEG_INLINE void keep_in_register([[maybe_unused]] __m512i& sum) {
#if !defined(THALWEG_EMULATED_AVX512)
    asm("" : "+v"(sum));
#endif
  }
};

}  // namespace
}  // namespace thalweg::kernels
