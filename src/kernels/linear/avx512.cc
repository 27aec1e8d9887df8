// AVX-512 without VNNI.
#include "kernels/linear/avx512_lanes.h"

namespace thalweg::kernels {
namespace {

struct Isa : Avx512Lanes {
  // See avx2.cc: no 16-bit lane overflows within a group.
  using Sum4 = __m512i;
  static THALWEG_INLINE Sum4 start4() { return _mm512_setzero_si512(); }
  static THALWEG_INLINE void add4(Sum4& sum, W words, std::int32_t activations) {
    sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(words, _mm512_set1_epi32(activations)));
    keep_in_register(sum);
  }
  static THALWEG_INLINE F float_from_sum4(Sum4 sum) {
    return _mm512_cvtepi32_ps(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)));
  }

  // There is no sign instruction of this width; where a code is negative the activation is subtracted from zero.
  struct Words8 {
    W magnitudes;
    __mmask64 negative;
  };
  static THALWEG_INLINE Words8 prepare8(W words) { return {_mm512_abs_epi8(words), _mm512_movepi8_mask(words)}; }
  static THALWEG_INLINE Sum8 start8(std::int32_t /*offset*/) { return _mm512_setzero_si512(); }
  static THALWEG_INLINE void add8(Sum8& sum, const Words8& words, std::int32_t activations) {
    const __m512i all = _mm512_set1_epi32(activations);
    const __m512i signed_all = _mm512_mask_sub_epi8(all, words.negative, _mm512_setzero_si512(), all);
    const __m512i pairs = _mm512_maddubs_epi16(words.magnitudes, signed_all);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    keep_in_register(sum);
  }
};

}  // namespace
}  // namespace thalweg::kernels

#include "kernels/linear/tile_kernels.h"

namespace thalweg::kernels {

const LinearVersion& avx512_version() {
  static constexpr LinearVersion kVersion{"avx512", quantize, product};
  return kVersion;
}

}  // namespace thalweg::kernels
