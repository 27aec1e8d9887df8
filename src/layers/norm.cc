#include "layers/norm.h"

#include <algorithm>

#include "device/thread_pool.h"
#include "kernels/norm/rms_norm.h"

namespace thalweg::layers {

Norm load_norm(WeightReader& reader, const std::string& name, std::int64_t size, float epsilon) {
  return {reader.vector(name + ".weight", size), epsilon};
}

void norm(device::Stream& stream, const Norm& layer, std::int64_t num_tokens, const float* x, float* out) {
  const auto size = static_cast<std::int64_t>(layer.weight.size());
  kernels::rms_norm(stream, {.x = x,
                             .x_stride = size,
                             .num_rows = num_tokens,
                             .num_cols = size,
                             .weight = layer.weight.data(),
                             .epsilon = layer.epsilon,
                             .out = out,
                             .out_stride = size});
}

void add_norm(device::Stream& stream, const Norm& layer, std::int64_t num_tokens, float* x, float* residual) {
  norm(stream, layer, num_tokens, x, x);
  constexpr std::int64_t kElementsPerTask = 16384;
  const std::int64_t num_elements = num_tokens * static_cast<std::int64_t>(layer.weight.size());
  const auto add = [&](std::int64_t task, int) {
    const std::int64_t begin = task * kElementsPerTask;
    const std::int64_t end = std::min(begin + kElementsPerTask, num_elements);
    for (std::int64_t i = begin; i < end; ++i) residual[i] += x[i];
  };
  stream.threads->parallel_for((num_elements + kElementsPerTask - 1) / kElementsPerTask, add);
}

void head_norm(device::Stream& stream, const Norm& layer, std::int64_t num_tokens, std::int32_t num_heads, float* x,
               std::int64_t stride) {
  kernels::head_rms_norm(stream, x, stride, num_tokens, num_heads, static_cast<std::int32_t>(layer.weight.size()),
                         layer.weight.data(), layer.epsilon);
}

}  // namespace thalweg::layers
