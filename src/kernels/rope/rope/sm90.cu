// One thread per pair of a token. Angles in double, as on the CPU: at a position of a million an fp32 angle is off by
// 0.03.
#include "device/cuda/runtime.h"
#include "kernels/rope/rope/sm90.h"

namespace thalweg::kernels::rotation {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) rope_table(const __grid_constant__ RopeTableSm90Params params) {
  const std::int32_t num_pairs = params.rope_dim / 2;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t token = index / num_pairs;
  const auto pair = static_cast<std::int32_t>(index - token * num_pairs);
  if (token >= params.num_tokens) return;
  double sine = 0.0;
  double cosine = 0.0;
  sincos(static_cast<double>(params.positions[token]) * static_cast<double>(params.inverse_frequencies[pair]), &sine,
         &cosine);
  float* row = params.cos_sin + token * params.rope_dim;
  row[pair] = static_cast<float>(cosine) * params.magnitude;
  row[num_pairs + pair] = static_cast<float>(sine) * params.magnitude;
}

}  // namespace

device::CudaStatus rope_table_sm90(CUstream_st* stream, const RopeTableSm90Params& params) {
  const std::int64_t num_threads = std::int64_t{params.num_tokens} * (params.rope_dim / 2);
  if (num_threads == 0) return {};
  rope_table<<<static_cast<unsigned int>((num_threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(params);
  return device::launched("rope_table");
}

}  // namespace thalweg::kernels::rotation
