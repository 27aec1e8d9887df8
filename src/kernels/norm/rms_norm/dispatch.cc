#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/norm/rms_norm/versions.h"

namespace thalweg::kernels {
namespace {

// Ten microseconds of one thread; less is not worth waking others for.
constexpr std::int64_t kElementsPerTask = 64 * 1024;

template <typename Body>
void for_each_row(device::Stream& stream, std::int64_t num_rows, std::int64_t num_cols, Body body) {
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, kElementsPerTask / num_cols);
  if (num_rows <= rows_per_task) {
    for (std::int64_t row = 0; row < num_rows; ++row) body(row);
    return;
  }
  const auto run_task = [&](std::int64_t task, int) {
    const std::int64_t end = std::min(num_rows, (task + 1) * rows_per_task);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) body(row);
  };
  stream.threads->parallel_for((num_rows + rows_per_task - 1) / rows_per_task, run_task);
}

norm::RmsNormRow* version_for(device::CpuLevel level) {
  return level >= device::CpuLevel::kAvx2 ? norm::rms_norm_row_avx2 : norm::rms_norm_row_reference;
}

}  // namespace

void rms_norm(device::Stream& stream, const RmsNormParams& params) {
  if (params.num_rows == 0) return;
  CHECK_GT(params.num_cols, 0);
  norm::RmsNormRow* norm_row = version_for(stream.cpu_level);
  for_each_row(stream, params.num_rows, params.num_cols, [&](std::int64_t row) {
    norm_row(params.x + row * params.x_stride, params.num_cols, params.weight, params.epsilon,
             params.out + row * params.out_stride);
  });
}

void head_rms_norm(device::Stream& stream, float* x, std::int64_t x_stride, std::int64_t num_tokens,
                   std::int32_t num_heads, std::int32_t head_dim, const float* weight, float epsilon) {
  if (num_tokens == 0) return;
  CHECK_GT(head_dim, 0);
  norm::RmsNormRow* norm_row = version_for(stream.cpu_level);
  for_each_row(stream, num_tokens, std::int64_t{num_heads} * head_dim, [&](std::int64_t token) {
    for (std::int32_t head = 0; head < num_heads; ++head) {
      float* row = x + token * x_stride + std::int64_t{head} * head_dim;
      norm_row(row, head_dim, weight, epsilon, row);
    }
  });
}

}  // namespace thalweg::kernels
