// Scores of all rows, softmax, weighted sum. A score is eight chains of fused multiply-adds over rising dimensions, an
// output one chain over rising rows; how many heads and rows are in flight beside it changes no bit.
#include <immintrin.h>

#include "kernels/attention/paged_attention/simd_avx2.h"
#include "kernels/attention/sparse_attention/round_bf16_avx2.h"
#include "kernels/attention/sparse_attention/versions.h"

namespace thalweg::kernels::sparse {
namespace {

using attention::Avx2;

// Rows whose values are added before the next outputs are taken up: 64 KiB at 512 dimensions, half of a second-level
// cache at most.
constexpr std::int32_t kRowsPerTile = 32;

/// Calls body with four heads at a time, then with one.
template <typename Body>
[[gnu::always_inline]] inline void for_head_blocks(std::int32_t num_heads, Body body) {
  std::int32_t head = 0;
  for (; head + 4 <= num_heads; head += 4) body.template operator()<4>(head);
  for (; head < num_heads; ++head) body.template operator()<1>(head);
}

/// Scores of H heads from `head` and R rows from `row`.
template <int H, int R>
void score(const AttendArgs& args, std::int32_t head, std::int32_t row) {
  const std::int64_t head_dim = args.head_dim;
  const float* q = args.q + head * head_dim;
  const float* keys = args.rows + row * args.row_stride;
  __m256 sums[H][R];
#pragma GCC unroll 8
  for (int i = 0; i < H * R; ++i) sums[i / R][i % R] = _mm256_setzero_ps();
  for (std::int64_t d = 0; d < head_dim; d += 8) {
    __m256 key[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) key[r] = _mm256_loadu_ps(keys + r * args.row_stride + d);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const __m256 query = _mm256_loadu_ps(q + h * head_dim + d);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[h][r] = _mm256_fmadd_ps(query, key[r], sums[h][r]);
    }
  }
  float* scores = args.weights + head * padded_rows(args.num_rows) + row;
  for (int h = 0; h < H; ++h) {
    for (int r = 0; r < R; ++r) {
      scores[h * padded_rows(args.num_rows) + r] = Avx2::reduce_add(sums[h][r]) * args.scale;
    }
  }
}

/// Makes weights of one head's scores and returns the denominator.
float softmax(const AttendArgs& args, float sink, float* weights) {
  const std::int64_t end = padded_rows(args.num_rows);
  for (std::int64_t row = args.num_rows; row < end; ++row) weights[row] = attention::kNothing;
  __m256 highest = _mm256_set1_ps(kLeastMax);
  for (std::int64_t row = 0; row < end; row += 8) {
    highest = _mm256_max_ps(highest, _mm256_loadu_ps(weights + row));
  }
  const float max = Avx2::reduce_maximum(highest);
  __m256 sum = _mm256_setzero_ps();
  for (std::int64_t row = 0; row < end; row += 8) {
    const __m256 below = _mm256_sub_ps(_mm256_loadu_ps(weights + row), _mm256_set1_ps(max));
    const __m256 weight = attention::exp2<Avx2>(_mm256_mul_ps(below, _mm256_set1_ps(attention::kLog2E)));
    sum = _mm256_add_ps(sum, weight);
    _mm256_storeu_ps(weights + row, args.rounds_bf16 ? round_bf16_avx2(weight) : weight);
  }
  return Avx2::reduce_add(sum) + __builtin_expf(sink - max);
}

/// Adds the weighted rows [first, last) to the outputs of H heads.
template <int H>
void add_values(const AttendArgs& args, std::int32_t head, std::int32_t first, std::int32_t last) {
  const std::int64_t head_dim = args.head_dim;
  const std::int64_t num_weights = padded_rows(args.num_rows);
  const float* weights = args.weights + head * num_weights;
  for (std::int64_t d = 0; d < head_dim; d += 16) {
    float* out = args.out + head * head_dim + d;
    __m256 sums[H][2];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * H; ++i) sums[i / 2][i % 2] = _mm256_loadu_ps(out + i / 2 * head_dim + i % 2 * 8);
    for (std::int32_t row = first; row < last; ++row) {
      const float* values = args.rows + row * args.row_stride + d;
      const __m256 left = _mm256_loadu_ps(values);
      const __m256 right = _mm256_loadu_ps(values + 8);
#pragma GCC unroll 8
      for (int h = 0; h < H; ++h) {
        const __m256 weight = _mm256_broadcast_ss(weights + h * num_weights + row);
        sums[h][0] = _mm256_fmadd_ps(weight, left, sums[h][0]);
        sums[h][1] = _mm256_fmadd_ps(weight, right, sums[h][1]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * H; ++i) _mm256_storeu_ps(out + i / 2 * head_dim + i % 2 * 8, sums[i / 2][i % 2]);
  }
}

}  // namespace

void attend_avx2(const AttendArgs& args) {
  std::int32_t row = 0;
  for (; row + 2 <= args.num_rows; row += 2) {
    for_head_blocks(args.num_heads, [&]<int H>(std::int32_t head) { score<H, 2>(args, head, row); });
  }
  if (row < args.num_rows) {
    for_head_blocks(args.num_heads, [&]<int H>(std::int32_t head) { score<H, 1>(args, head, row); });
  }

  float totals[kMaxHeads];
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    totals[head] = softmax(args, args.sinks[head], args.weights + head * padded_rows(args.num_rows));
  }

  const std::int64_t num_outputs = std::int64_t{args.num_heads} * args.head_dim;
  for (std::int64_t i = 0; i < num_outputs; i += 8) _mm256_storeu_ps(args.out + i, _mm256_setzero_ps());
  for (std::int32_t first = 0; first < args.num_rows; first += kRowsPerTile) {
    const std::int32_t last = attention::smaller(args.num_rows, first + kRowsPerTile);
    for_head_blocks(args.num_heads, [&]<int H>(std::int32_t head) { add_values<H>(args, head, first, last); });
  }
  for (std::int64_t i = 0; i < num_outputs; i += 8) {
    const __m256 total = _mm256_set1_ps(totals[i / args.head_dim]);
    const __m256 result = _mm256_div_ps(_mm256_loadu_ps(args.out + i), total);
    _mm256_storeu_ps(args.out + i, args.rounds_bf16 ? round_bf16_avx2(result) : result);
  }
}

}  // namespace thalweg::kernels::sparse
