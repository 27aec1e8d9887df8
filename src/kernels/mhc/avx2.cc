#include <immintrin.h>

#include "kernels/mhc/channels.h"
#include "kernels/mhc/versions.h"

namespace thalweg::kernels::mhc {
namespace {

/// All rows in one pass over x; a row's 16 partial sums are two registers.
template <int kRows>
void dot_fixed_rows(const float* rows, std::int64_t num_cols, const float* x, float* dots) {
  __m256 sums[kRows][2];
  for (auto& row : sums) row[0] = row[1] = _mm256_setzero_ps();
  std::int64_t k = 0;
  for (; k + kNumPartialSums <= num_cols; k += kNumPartialSums) {
    const __m256 low = _mm256_loadu_ps(x + k);
    const __m256 high = _mm256_loadu_ps(x + k + 8);
    for (int row = 0; row < kRows; ++row) {
      const float* weights = rows + row * num_cols + k;
      sums[row][0] = _mm256_fmadd_ps(_mm256_loadu_ps(weights), low, sums[row][0]);
      sums[row][1] = _mm256_fmadd_ps(_mm256_loadu_ps(weights + 8), high, sums[row][1]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    float partial_sums[kNumPartialSums];
    _mm256_storeu_ps(partial_sums, sums[row][0]);
    _mm256_storeu_ps(partial_sums + 8, sums[row][1]);
    dot_columns(rows + row * num_cols, x, k, num_cols, partial_sums);
    dots[row] = add_partial_sums(partial_sums);
  }
}

void dot_rows(const float* rows, int num_rows, std::int64_t num_cols, const float* x, float* dots) {
  if (num_rows == kMaxDotRows) {
    dot_fixed_rows<kMaxDotRows>(rows, num_cols, x, dots);
    return;
  }
  for (int row = 0; row < num_rows; ++row) dot_fixed_rows<1>(rows + row * num_cols, num_cols, x, dots + row);
}

THALWEG_INLINE __m256 rounded_to_bf16(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i nearest = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
  const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(nearest), _mm256_castsi256_ps(quiet), is_nan);
  return _mm256_and_ps(chosen, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

void collapse(const float* x, const float* pre, int num_streams, std::int64_t hidden_size, bool rounds_bf16,
              float* out) {
  std::int64_t c = 0;
  for (; c + 8 <= hidden_size; c += 8) {
    __m256 sum = _mm256_setzero_ps();
    for (int j = 0; j < num_streams; ++j) {
      sum = _mm256_fmadd_ps(_mm256_set1_ps(pre[j]), _mm256_loadu_ps(x + j * hidden_size + c), sum);
    }
    _mm256_storeu_ps(out + c, rounds_bf16 ? rounded_to_bf16(sum) : sum);
  }
  collapse_channels(x, pre, num_streams, hidden_size, rounds_bf16, out, c);
}

void expand(const float* sublayer, const float* post, const float* comb, int num_streams, std::int64_t hidden_size,
            bool rounds_bf16, float* x) {
  std::int64_t c = 0;
  for (; c + 8 <= hidden_size; c += 8) {
    const __m256 added = _mm256_loadu_ps(sublayer + c);
    __m256 sources[kMaxStreams];
    for (int j = 0; j < num_streams; ++j) sources[j] = _mm256_loadu_ps(x + j * hidden_size + c);
    for (int k = 0; k < num_streams; ++k) {
      __m256 sum = _mm256_mul_ps(_mm256_set1_ps(post[k]), added);
      for (int j = 0; j < num_streams; ++j) {
        sum = _mm256_fmadd_ps(_mm256_set1_ps(comb[j * num_streams + k]), sources[j], sum);
      }
      _mm256_storeu_ps(x + k * hidden_size + c, rounds_bf16 ? rounded_to_bf16(sum) : sum);
    }
  }
  expand_channels(sublayer, post, comb, num_streams, hidden_size, rounds_bf16, x, c);
}

}  // namespace

const Version& avx2_version() {
  static constexpr Version kVersion{dot_rows, collapse, expand};
  return kVersion;
}

}  // namespace thalweg::kernels::mhc
