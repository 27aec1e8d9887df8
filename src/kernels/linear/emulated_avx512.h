// AVX-512 intrinsics made of AVX2's, for tests. Before any header of intrinsics.
#pragma once

#pragma GCC target("avx2,fma,f16c")
#pragma GCC diagnostic ignored "-Wpsabi"

// The compiler preprocesses a file before it obeys the pragma above, so these say to headers what it will say.
#define __SSE3__ 1
#define __SSSE3__ 1
#define __SSE4_1__ 1
#define __SSE4_2__ 1
#define __AVX__ 1
#define __AVX2__ 1
#define __FMA__ 1
#define __F16C__ 1

#define THALWEG_EMULATED_AVX512
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>
#include <simde/x86/avx512.h>

// What SIMDe lacks or, in its version 0.7.4, spells wrong.
template <typename Whole, typename Half>
__attribute__((always_inline)) static inline Whole emulated_join(Half low, Half high) {
  Whole whole;
  __builtin_memcpy(&whole, &low, sizeof(low));
  __builtin_memcpy(reinterpret_cast<char*>(&whole) + sizeof(low), &high, sizeof(high));
  return whole;
}
__attribute__((always_inline)) static inline __m256 emulated_extractf32x8(const __m512& v, int index) {
  __m256 half;
  __builtin_memcpy(&half, reinterpret_cast<const char*>(&v) + index * sizeof(half), sizeof(half));
  return half;
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(v, index) emulated_extractf32x8(v, index)
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(v) \
  emulated_join<__m512>(_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)))
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(v)                                           \
  emulated_join<__m512i>(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)), \
                         _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)))
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(v) \
  emulated_join<__m512i>(_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(v) \
  emulated_join<__m512i>(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))
__attribute__((always_inline)) static inline __m512 emulated_cvtepi32_ps(const __m512i& v) {
  __m256i halves[2];
  __builtin_memcpy(halves, &v, sizeof(halves));
  return emulated_join<__m512>(_mm256_cvtepi32_ps(halves[0]), _mm256_cvtepi32_ps(halves[1]));
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) emulated_cvtepi32_ps(v)
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
