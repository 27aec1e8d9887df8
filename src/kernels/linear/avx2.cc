// AVX2: a tile's 16 rows are two registers.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/always_inline.h"

namespace thalweg::kernels {
namespace {

struct Isa {
  struct F {
    __m256 low;
    __m256 high;
  };
  struct W {
    __m256i low;
    __m256i high;
  };

  static constexpr int kTokens4 = 3;
  static constexpr int kTokens8 = 2;
  static constexpr int kTokensF = 6;

  static THALWEG_INLINE __m256 low_half(F v) { return v.low; }
  static THALWEG_INLINE __m256 high_half(F v) { return v.high; }

  static THALWEG_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static THALWEG_INLINE F broadcast(float v) {
    const __m256 all = _mm256_set1_ps(v);
    return {all, all};
  }
  static THALWEG_INLINE F multiply(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static THALWEG_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }

  static THALWEG_INLINE __m128i load16(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static THALWEG_INLINE F load_f32(const std::byte* from) {
    const auto* floats = reinterpret_cast<const float*>(from);
    return {_mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
  }
  static THALWEG_INLINE void store_f32(std::byte* to, F v) {
    auto* floats = reinterpret_cast<float*>(to);
    _mm256_storeu_ps(floats, v.low);
    _mm256_storeu_ps(floats + 8, v.high);
  }
  static THALWEG_INLINE F load_f16(const std::byte* from) {
    return {_mm256_cvtph_ps(load16(from)), _mm256_cvtph_ps(load16(from + 16))};
  }
  static THALWEG_INLINE __m256 widen_bf16(__m128i codes) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
  static THALWEG_INLINE F load_bf16(const std::byte* from) {
    return {widen_bf16(load16(from)), widen_bf16(load16(from + 16))};
  }
  static THALWEG_INLINE F float_from_u8(const std::byte* from) {
    const __m128i bytes = load16(from);
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
  }

  static THALWEG_INLINE W load_words(const std::byte* from) {
    const auto* halves = reinterpret_cast<const __m256i*>(from);
    return {_mm256_load_si256(halves), _mm256_load_si256(halves + 1)};
  }
  static THALWEG_INLINE void store_words(std::byte* to, W words) {
    auto* halves = reinterpret_cast<__m256i*>(to);
    _mm256_store_si256(halves, words.low);
    _mm256_store_si256(halves + 1, words.high);
  }
  static THALWEG_INLINE W low_nibbles(W words) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(words.low, mask), _mm256_and_si256(words.high, mask)};
  }
  static THALWEG_INLINE W high_nibbles(W words) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(words.low, 4), mask),
            _mm256_and_si256(_mm256_srli_epi16(words.high, 4), mask)};
  }

  // Codes up to 15 times activations up to 127, two to a lane and 8 words to a group: at most 30480, no 16-bit lane
  // overflows within a group.
  struct Sum4 {
    __m256i low;
    __m256i high;
  };
  // Without it the compiler turns chains of additions into trees and spills their leaves.
  static THALWEG_INLINE void keep_in_register(__m256i& sum) { asm("" : "+x"(sum)); }
  static THALWEG_INLINE Sum4 start4() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static THALWEG_INLINE void add4(Sum4& sum, W words, std::int32_t activations) {
    const __m256i all = _mm256_set1_epi32(activations);
    sum.low = _mm256_add_epi16(sum.low, _mm256_maddubs_epi16(words.low, all));
    keep_in_register(sum.low);
    sum.high = _mm256_add_epi16(sum.high, _mm256_maddubs_epi16(words.high, all));
    keep_in_register(sum.high);
  }
  static THALWEG_INLINE F float_from_sum4(Sum4 sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_cvtepi32_ps(_mm256_madd_epi16(sum.low, ones)),
            _mm256_cvtepi32_ps(_mm256_madd_epi16(sum.high, ones))};
  }

  // Signed times signed as magnitude times signed: |w| up to 128 times activations up to 127, two to a lane, is at most
  // 32512 and fits 16 bits.
  struct Words8 {
    W codes;
    W magnitudes;
  };
  struct Sum8 {
    __m256i low;
    __m256i high;
  };
  static THALWEG_INLINE Words8 prepare8(W words) {
    return {words, {_mm256_abs_epi8(words.low), _mm256_abs_epi8(words.high)}};
  }
  static THALWEG_INLINE Sum8 start8(std::int32_t /*offset*/) {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  static THALWEG_INLINE __m256i dot(__m256i codes, __m256i magnitudes, __m256i activations) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(activations, codes));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  static THALWEG_INLINE void add8(Sum8& sum, const Words8& words, std::int32_t activations) {
    const __m256i all = _mm256_set1_epi32(activations);
    sum.low = _mm256_add_epi32(sum.low, dot(words.codes.low, words.magnitudes.low, all));
    keep_in_register(sum.low);
    sum.high = _mm256_add_epi32(sum.high, dot(words.codes.high, words.magnitudes.high, all));
    keep_in_register(sum.high);
  }
  static THALWEG_INLINE Sum8 add(Sum8 a, Sum8 b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  }
  static THALWEG_INLINE Sum8 multiply_by_i8(Sum8 sum, const std::byte* scales) {
    const __m128i bytes = load16(scales);
    return {_mm256_mullo_epi32(sum.low, _mm256_cvtepi8_epi32(bytes)),
            _mm256_mullo_epi32(sum.high, _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static THALWEG_INLINE F float_from_sum8(Sum8 sum) {
    return {_mm256_cvtepi32_ps(sum.low), _mm256_cvtepi32_ps(sum.high)};
  }
};

}  // namespace
}  // namespace thalweg::kernels

#include "kernels/linear/tile_kernels.h"

namespace thalweg::kernels {

const LinearVersion& avx2_version() {
  static constexpr LinearVersion kVersion{"avx2", quantize, product};
  return kVersion;
}

}  // namespace thalweg::kernels
