#include <immintrin.h>

#include "kernels/norm/rms_norm/versions.h"

namespace thalweg::kernels::norm {
namespace {

float sum_lanes(__m256 x) {
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

/// Four vectors of partial sums, then the rest one by one: an order fixed by num_cols.
float sum_of_squares(const float* x, std::int64_t num_cols) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  std::int64_t i = 0;
  for (; i + 32 <= num_cols; i += 32) {
    for (int part = 0; part < 4; ++part) {
      const __m256 values = _mm256_loadu_ps(x + i + 8 * part);
      sums[part] = _mm256_fmadd_ps(values, values, sums[part]);
    }
  }
  float sum = sum_lanes(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
  for (; i < num_cols; ++i) sum += x[i] * x[i];
  return sum;
}

}  // namespace

void rms_norm_row_avx2(const float* x, std::int64_t num_cols, const float* weight, float epsilon, float* out) {
  const float mean = sum_of_squares(x, num_cols) / static_cast<float>(num_cols);
  const float scale = 1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + epsilon)));
  const __m256 scales = _mm256_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 8 <= num_cols; i += 8) {
    __m256 values = _mm256_mul_ps(_mm256_loadu_ps(x + i), scales);
    if (weight != nullptr) values = _mm256_mul_ps(values, _mm256_loadu_ps(weight + i));
    _mm256_storeu_ps(out + i, values);
  }
  for (; i < num_cols; ++i) out[i] = x[i] * scale * (weight == nullptr ? 1.0F : weight[i]);
}

}  // namespace thalweg::kernels::norm
