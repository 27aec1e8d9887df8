#include <immintrin.h>

#include "kernels/rope/rope/versions.h"

namespace thalweg::kernels::rotation {

void rope_halves_avx2(const RopeTokenArgs& args) {
  const std::int32_t num_pairs = args.num_pairs;
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    float* first = args.x + std::int64_t{head} * args.head_dim;
    float* second = first + num_pairs;
    std::int32_t i = 0;
    for (; i + 8 <= num_pairs; i += 8) {
      const __m256 a = _mm256_loadu_ps(first + i);
      const __m256 b = _mm256_loadu_ps(second + i);
      const __m256 cos = _mm256_loadu_ps(args.cos + i);
      const __m256 sin = _mm256_loadu_ps(args.sin + i);
      _mm256_storeu_ps(first + i, _mm256_fmsub_ps(a, cos, _mm256_mul_ps(b, sin)));
      _mm256_storeu_ps(second + i, _mm256_fmadd_ps(b, cos, _mm256_mul_ps(a, sin)));
    }
    for (; i < num_pairs; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = __builtin_fmaf(a, args.cos[i], -(b * args.sin[i]));
      second[i] = __builtin_fmaf(b, args.cos[i], a * args.sin[i]);
    }
  }
}

void rope_interleaved_avx2(const RopeTokenArgs& args) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    float* x = args.x + std::int64_t{head} * args.head_dim;
    std::int32_t i = 0;
    for (; i + 4 <= args.num_pairs; i += 4) {
      const __m256 pairs = _mm256_loadu_ps(x + 2 * i);
      const __m256 swapped = _mm256_permute_ps(pairs, 0b10110001);
      const __m256 cos = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(args.cos + i)), twice);
      const __m256 sin = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(args.sin + i)), twice);
      _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(pairs, cos, _mm256_mul_ps(swapped, sin)));
    }
    for (; i < args.num_pairs; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      x[2 * i] = __builtin_fmaf(a, args.cos[i], -(b * args.sin[i]));
      x[2 * i + 1] = __builtin_fmaf(b, args.cos[i], a * args.sin[i]);
    }
  }
}

}  // namespace thalweg::kernels::rotation
