// gcc 12 sees an uninitialised variable in its own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include <immintrin.h>

#include <cstdint>

#include "kernels/attention/paged_attention/simd_avx2.h"
#include "kernels/attention/paged_attention/tiles.h"
#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {
namespace {

/// Sixteen lanes. Order of the sums within a tile's weights differs from AVX2, nothing else.
struct Avx512 {
  using Vector = __m512;
  using Half = Avx2;
  static constexpr int kWidth = 16;

  /// Two streams of keys or values from memory are fetched ahead better than four (decode a fifth faster on Sapphire
  /// Rapids); one row needs four for the adders' latency, many rows re-read them from the caches.
  template <int R>
  static constexpr int vectors_in_flight() {
    return R == 2 || R == 3 ? 2 : 4;
  }

  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static Vector load(const F16* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Vector load(const BF16* from) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
  }
  static void store(float* to, Vector x) { _mm512_storeu_ps(to, x); }
  static Vector set(float x) { return _mm512_set1_ps(x); }
  static float first(Vector x) { return _mm_cvtss_f32(_mm512_castps512_ps128(x)); }

  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector maximum(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector round(Vector x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static Vector add_to_exponent(Vector x, Vector whole) {
    const __m512i shifted = _mm512_slli_epi32(_mm512_cvtps_epi32(whole), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), shifted));
  }
  static Vector zero_below(Vector x, float limit, Vector y) {
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(y, below, _mm512_setzero_ps());
  }
  static Vector keep_lanes(Vector x, std::int32_t first, std::int32_t last, float other) {
    const std::uint32_t from = first > 0 ? 0xFFFFU << first : 0xFFFFU;
    const std::uint32_t to = last < kWidth ? (1U << last) - 1 : 0xFFFFU;
    return _mm512_mask_mov_ps(_mm512_set1_ps(other), static_cast<__mmask16>(from & to), x);
  }

  static __m256 upper(Vector x) { return _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(x), 1)); }
  static float reduce_maximum(Vector x) {
    return Avx2::reduce_maximum(Avx2::maximum(_mm512_castps512_ps256(x), upper(x)));
  }
  static float reduce_add(Vector x) { return Avx2::reduce_add(Avx2::add(_mm512_castps512_ps256(x), upper(x))); }

  static void zero8(float* to) { Avx2::zero8(to); }
  static void copy8(float* to, const float* from) { Avx2::copy8(to, from); }
  template <typename E>
  static void narrow8(E* to, const float* from) {
    Avx2::narrow8(to, from);
  }
};

}  // namespace

void write_kv_avx512(const WriteKvArgs& args) { write_kv_any<Avx512>(args); }
void attend_avx512(const AttendArgs& args) { attend_any<Avx512>(args); }
void combine_avx512(const CombineArgs& args) { combine_any<Avx512>(args); }

}  // namespace thalweg::kernels::attention
