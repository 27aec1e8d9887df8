#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/for_each_row.h"
#include "kernels/mhc/mhc.h"
#include "kernels/mhc/versions.h"

namespace thalweg::kernels {
namespace {

const mhc::Version& version_for(device::CpuLevel level) {
  return level >= device::CpuLevel::kAvx2 ? mhc::avx2_version() : mhc::reference_version();
}

void check_shape(const MhcShape& shape) {
  CHECK_GT(shape.num_streams, 0);
  CHECK_LE(shape.num_streams, mhc::kMaxStreams);
  CHECK_GT(shape.hidden_size, 0);
}

/// Rows of fn times the streams, which have been divided by their root mean square: [num_tokens, num_rows].
std::vector<float> project(device::Stream& stream, const MhcShape& shape, const float* fn, std::int64_t num_rows,
                           std::int64_t num_tokens, const float* x) {
  // A task takes a few rows for a few tokens: one token alone still keeps several threads reading fn, and many tokens
  // find a task's rows in the cache.
  constexpr std::int64_t kTokensPerTask = 4;
  const mhc::Version& version = version_for(stream.cpu_level);
  const std::int64_t num_cols = shape.num_streams * shape.hidden_size;
  const std::int64_t num_row_groups = (num_rows + mhc::kMaxDotRows - 1) / mhc::kMaxDotRows;
  const std::int64_t num_token_groups = (num_tokens + kTokensPerTask - 1) / kTokensPerTask;
  std::vector<float> products(num_tokens * num_rows);
  std::vector<float> squares(num_tokens);
  stream.threads->parallel_for(num_token_groups * (num_row_groups + 1), [&](std::int64_t task, int) {
    const std::int64_t row_group = task % (num_row_groups + 1);  // the one after the last: squares
    const std::int64_t first_token = task / (num_row_groups + 1) * kTokensPerTask;
    const std::int64_t last_token = std::min(num_tokens, first_token + kTokensPerTask);
    const std::int64_t first_row = row_group * mhc::kMaxDotRows;
    const int rows_here = static_cast<int>(std::min<std::int64_t>(mhc::kMaxDotRows, num_rows - first_row));
    for (std::int64_t token = first_token; token < last_token; ++token) {
      const float* streams = x + token * num_cols;
      if (row_group == num_row_groups) {
        version.dot_rows(streams, 1, num_cols, streams, squares.data() + token);
      } else {
        version.dot_rows(fn + first_row * num_cols, rows_here, num_cols, streams,
                         products.data() + token * num_rows + first_row);
      }
    }
  });
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    const float norm = 1.0F / std::sqrt(squares[token] / static_cast<float>(num_cols) + shape.norm_epsilon);
    for (std::int64_t row = 0; row < num_rows; ++row) products[token * num_rows + row] *= norm;
  }
  return products;
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

/// Each row of `matrix` [n, n] to its softmax, plus epsilon.
void softmax_rows(int n, float epsilon, float* matrix) {
  for (float* row = matrix; row < matrix + n * n; row += n) {
    const float highest = *std::max_element(row, row + n);
    float sum = 0.0F;
    for (int k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - highest);
    for (int k = 0; k < n; ++k) row[k] = row[k] / sum + epsilon;
  }
}

/// Divides each of n lines by its sum. An element of a line is `step` after the one before it, a line `line_step`
/// after its neighbour.
void normalize_lines(int n, int step, int line_step, float epsilon, float* matrix) {
  for (int line = 0; line < n; ++line) {
    float* first = matrix + line * line_step;
    float sum = 0.0F;
    for (int i = 0; i < n; ++i) sum += first[i * step];
    for (int i = 0; i < n; ++i) first[i * step] /= sum + epsilon;
  }
}

/// Towards a doubly stochastic matrix; starts and ends with a column step.
void sinkhorn(int n, int num_steps, float epsilon, float* matrix) {
  softmax_rows(n, epsilon, matrix);
  for (int step = 0; step < num_steps; ++step) {
    if (step > 0) normalize_lines(n, 1, n, epsilon, matrix);
    normalize_lines(n, n, 1, epsilon, matrix);
  }
}

}  // namespace

void mhc_mix(device::Stream& stream, const MhcShape& shape, const MhcMix& mix, std::int64_t num_tokens, const float* x,
             float* pre, float* post, float* comb) {
  if (num_tokens == 0) return;
  check_shape(shape);
  const int n = shape.num_streams;
  const int num_rows = n * (n + 2);
  const std::vector<float> products = project(stream, shape, mix.fn, num_rows, num_tokens, x);
  const std::int64_t token_cost = std::int64_t{16} * n * n * shape.num_sinkhorn_steps;  // mostly divisions
  for_each_row(stream, num_tokens, token_cost, [&](std::int64_t token) {
    const float* row_products = products.data() + token * num_rows;
    const auto mixed = [&](int row, int part) { return row_products[row] * mix.scale[part] + mix.base[row]; };
    for (int j = 0; j < n; ++j) pre[token * n + j] = sigmoid(mixed(j, 0)) + shape.epsilon;
    for (int k = 0; k < n; ++k) post[token * n + k] = 2.0F * sigmoid(mixed(n + k, 1));
    float* matrix = comb + token * n * n;
    for (int i = 0; i < n * n; ++i) matrix[i] = mixed(2 * n + i, 2);
    sinkhorn(n, shape.num_sinkhorn_steps, shape.epsilon, matrix);
  });
}

void mhc_head_mix(device::Stream& stream, const MhcShape& shape, const MhcMix& mix, std::int64_t num_tokens,
                  const float* x, float* pre) {
  if (num_tokens == 0) return;
  check_shape(shape);
  const int n = shape.num_streams;
  const std::vector<float> products = project(stream, shape, mix.fn, n, num_tokens, x);
  for (std::int64_t i = 0; i < num_tokens * n; ++i) {
    pre[i] = sigmoid(products[i] * mix.scale[0] + mix.base[i % n]) + shape.epsilon;
  }
}

void mhc_collapse(device::Stream& stream, const MhcShape& shape, std::int64_t num_tokens, const float* x,
                  const float* pre, bool rounds_bf16, float* out) {
  if (num_tokens == 0) return;
  check_shape(shape);
  const int n = shape.num_streams;
  const mhc::Version& version = version_for(stream.cpu_level);
  for_each_row(stream, num_tokens, n * shape.hidden_size, [&](std::int64_t token) {
    version.collapse(x + token * n * shape.hidden_size, pre + token * n, n, shape.hidden_size, rounds_bf16,
                     out + token * shape.hidden_size);
  });
}

void mhc_expand(device::Stream& stream, const MhcShape& shape, std::int64_t num_tokens, const float* sublayer,
                const float* post, const float* comb, bool rounds_bf16, float* x) {
  if (num_tokens == 0) return;
  check_shape(shape);
  const int n = shape.num_streams;
  const mhc::Version& version = version_for(stream.cpu_level);
  for_each_row(stream, num_tokens, 2 * n * shape.hidden_size, [&](std::int64_t token) {
    version.expand(sublayer + token * shape.hidden_size, post + token * n, comb + token * n * n, n, shape.hidden_size,
                   rounds_bf16, x + token * n * shape.hidden_size);
  });
}

}  // namespace thalweg::kernels
