// The AVX-512 version with its intrinsics made of AVX2's, for machines without; test.cc runs it.
#include "kernels/linear/emulated_avx512.h"

__attribute__((always_inline)) static inline __m512i emulated_cvtps_epi32(const __m512& v) {
  __m256 halves[2];
  __builtin_memcpy(halves, &v, sizeof(halves));
  return emulated_join<__m512i>(_mm256_cvtps_epi32(halves[0]), _mm256_cvtps_epi32(halves[1]));
}
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(v) emulated_cvtps_epi32(v)

#define write_kv_avx512 emulated_write_kv_avx512
#define attend_avx512 emulated_attend_avx512
#define combine_avx512 emulated_combine_avx512
#include "kernels/attention/paged_attention/avx512.cc"
