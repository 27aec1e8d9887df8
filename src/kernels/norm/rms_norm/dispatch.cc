#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/cuda_launch.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/norm/rms_norm/sm90.h"
#include "kernels/norm/rms_norm/versions.h"

namespace thalweg::kernels {
namespace {

using device::DType;

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

norm::RmsNormSm90Params sm90_params(const RmsNormParams& params) {
  const bool x_is_bf16 = params.x_dtype == DType::kBF16;
  const bool out_is_bf16 = params.out_dtype == DType::kBF16;
  CHECK(x_is_bf16 || params.x_dtype == DType::kF32);
  CHECK(out_is_bf16 || (params.out_dtype == DType::kF32 && !x_is_bf16));
  return {.x = params.x,
          .x_row_stride = params.x_stride,
          .out = params.out,
          .out_row_stride = params.out_stride,
          .num_groups = 1,
          .rows_per_group = params.num_rows,
          .num_cols = params.num_cols,
          .weight = params.weight,
          .epsilon = params.epsilon,
          .x_is_bf16 = x_is_bf16,
          .out_is_bf16 = out_is_bf16};
}

}  // namespace

void rms_norm(device::Stream& stream, const RmsNormParams& params) {
  if (params.num_rows == 0) return;
  CHECK_GT(params.num_cols, 0);
  if (stream.kind == device::DeviceKind::kCuda) {
    return launch(stream, "rms_norm", &CudaKernels::rms_norm, sm90_params(params));
  }
  CHECK(params.x_dtype == DType::kF32 && params.out_dtype == DType::kF32);
  const auto* x = static_cast<const float*>(params.x);
  auto* out = static_cast<float*>(params.out);
  norm::RmsNormRow* norm_row = version_for(stream.cpu_level);
  for_each_row(stream, params.num_rows, params.num_cols, [&](std::int64_t row) {
    norm_row(x + row * params.x_stride, params.num_cols, params.weight, params.epsilon, out + row * params.out_stride);
  });
}

void head_rms_norm(device::Stream& stream, float* x, std::int64_t x_stride, std::int64_t num_tokens,
                   std::int32_t num_heads, std::int32_t head_dim, const float* weight, float epsilon) {
  if (num_tokens == 0) return;
  CHECK_GT(head_dim, 0);
  if (stream.kind == device::DeviceKind::kCuda) {
    return launch(stream, "head_rms_norm", &CudaKernels::rms_norm,
                  norm::RmsNormSm90Params{.x = x,
                                          .x_group_stride = x_stride,
                                          .x_row_stride = head_dim,
                                          .out = x,
                                          .out_group_stride = x_stride,
                                          .out_row_stride = head_dim,
                                          .num_groups = num_tokens,
                                          .rows_per_group = num_heads,
                                          .num_cols = head_dim,
                                          .weight = weight,
                                          .epsilon = epsilon});
  }
  norm::RmsNormRow* norm_row = version_for(stream.cpu_level);
  for_each_row(stream, num_tokens, std::int64_t{num_heads} * head_dim, [&](std::int64_t token) {
    for (std::int32_t head = 0; head < num_heads; ++head) {
      float* row = x + token * x_stride + std::int64_t{head} * head_dim;
      norm_row(row, head_dim, weight, epsilon, row);
    }
  });
}

}  // namespace thalweg::kernels
