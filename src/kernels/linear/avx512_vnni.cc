// AVX-512 with VNNI: four products of unsigned by signed bytes are added to a 32-bit lane at once.
#include "kernels/linear/avx512_lanes.h"

namespace thalweg::kernels {
namespace {

struct Isa : Avx512Lanes {
  using Sum4 = __m512i;
  static THALWEG_INLINE Sum4 start4() { return _mm512_setzero_si512(); }
  static THALWEG_INLINE void add4(Sum4& sum, W words, std::int32_t activations) {
    sum = _mm512_dpbusd_epi32(sum, words, _mm512_set1_epi32(activations));
  }
  static THALWEG_INLINE F float_from_sum4(Sum4 sum) { return _mm512_cvtepi32_ps(sum); }

  // Signed codes become unsigned by adding 128; the activations' offsets take away what that adds.
  using Words8 = W;
  static THALWEG_INLINE Words8 prepare8(W words) {
    return _mm512_xor_si512(words, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  static THALWEG_INLINE Sum8 start8(std::int32_t offset) { return _mm512_set1_epi32(offset); }
  static THALWEG_INLINE void add8(Sum8& sum, Words8 words, std::int32_t activations) {
    sum = _mm512_dpbusd_epi32(sum, words, _mm512_set1_epi32(activations));
  }
};

}  // namespace
}  // namespace thalweg::kernels

#include "kernels/linear/tile_kernels.h"

namespace thalweg::kernels {

const LinearVersion& avx512_vnni_version() {
  static constexpr LinearVersion kVersion{"avx512_vnni", quantize, product};
  return kVersion;
}

}  // namespace thalweg::kernels
