// Memory-bound: one thread turns 16 bytes into 8, four times, with all loads in flight at once.
#include <cuda_bf16.h>

#include "device/cuda/runtime.h"
#include "kernels/swiglu/sm90.h"

namespace thalweg::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kCols = 4;   // that a thread makes at once
constexpr int kParts = 4;  // how many times

__device__ float activate(float gate, float up, float limit) {
  if (limit > 0.0F) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  return __fdividef(gate, 1.0F + __expf(-gate)) * up;
}

__global__ void __launch_bounds__(kThreads) swiglu(const __grid_constant__ SwigluSm90Params params) {
  const std::int64_t row = blockIdx.x;
  const auto* from = static_cast<const __nv_bfloat16*>(params.gate_up) + row * params.gate_up_stride;
  auto* to = static_cast<__nv_bfloat16*>(params.out) + row * params.out_stride;
  const auto num_cols = static_cast<std::int32_t>(params.num_cols);
  const std::int32_t first =
      (static_cast<std::int32_t>(blockIdx.y) * kParts * kThreads + static_cast<std::int32_t>(threadIdx.x)) * kCols;
  alignas(16) __nv_bfloat162 pairs[kParts][kCols];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::int32_t col = first + part * kThreads * kCols;
    if (col < num_cols) *reinterpret_cast<uint4*>(pairs[part]) = *reinterpret_cast<const uint4*>(from + 2 * col);
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::int32_t col = first + part * kThreads * kCols;
    if (col >= num_cols) continue;
    alignas(8) __nv_bfloat16 result[kCols];
#pragma unroll
    for (int i = 0; i < kCols; ++i) {
      result[i] =
          __float2bfloat16_rn(activate(__low2float(pairs[part][i]), __high2float(pairs[part][i]), params.limit));
    }
    *reinterpret_cast<uint2*>(to + col) = *reinterpret_cast<const uint2*>(result);
  }
}

}  // namespace

device::CudaStatus swiglu_sm90(CUstream_st* stream, const SwigluSm90Params& params) {
  if (params.num_rows == 0) return {};
  constexpr std::int64_t kBlockCols = std::int64_t{kParts} * kThreads * kCols;
  const dim3 grid(static_cast<unsigned int>(params.num_rows),
                  static_cast<unsigned int>((params.num_cols + kBlockCols - 1) / kBlockCols));
  swiglu<<<grid, kThreads, 0, stream>>>(params);
  return device::launched("swiglu");
}

}  // namespace thalweg::kernels
