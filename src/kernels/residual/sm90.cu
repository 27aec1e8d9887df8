// Memory-bound. A row of the residual stream is read once, stays in the registers of its block between the addition and
// the norm, and is written once.
#include <cuda_bf16.h>

#include "device/cuda/runtime.h"
#include "kernels/residual/sm90.h"

namespace thalweg::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // columns that a thread takes at once

struct Eight {
  float values[kWidth];

  __device__ static Eight from(const __nv_bfloat16* x) {
    alignas(16) __nv_bfloat162 pairs[kWidth / 2];
    *reinterpret_cast<uint4*>(pairs) = *reinterpret_cast<const uint4*>(x);
    Eight result;
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      result.values[2 * i] = __low2float(pairs[i]);
      result.values[2 * i + 1] = __high2float(pairs[i]);
    }
    return result;
  }
  __device__ static Eight from(const float* x) {
    Eight result;
    *reinterpret_cast<float4*>(result.values) = *reinterpret_cast<const float4*>(x);
    *reinterpret_cast<float4*>(result.values + 4) = *reinterpret_cast<const float4*>(x + 4);
    return result;
  }
  __device__ void store(float* to) const {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
    *reinterpret_cast<float4*>(to + 4) = make_float4(values[4], values[5], values[6], values[7]);
  }
  __device__ void store(__nv_bfloat16* to) const {
    alignas(16) __nv_bfloat162 pairs[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) pairs[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pairs);
  }
};

__global__ void __launch_bounds__(kThreads) embed(const __grid_constant__ EmbedSm90Params params) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t id = params.ids[token];
  const bool is_known = id >= 0 && id < params.num_ids;
  const auto* row = static_cast<const __nv_bfloat16*>(params.table) + (is_known ? id : 0) * params.num_cols;
  for (std::int64_t col = threadIdx.x * kWidth; col < params.num_cols; col += kThreads * kWidth) {
    Eight eight = {};
    if (is_known) eight = Eight::from(row + col);
#pragma unroll
    for (float& value : eight.values) value *= params.scale;
    eight.store(params.out + token * params.num_cols + col);
  }
}

__device__ float sum_block(float value) {
  __shared__ float of_warps[kThreads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffU, value, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (const float of_warp : of_warps) sum += of_warp;
  return sum;
}

/// A row has at most kParts * kThreads * kWidth columns.
template <int kParts>
__global__ void __launch_bounds__(kThreads) add_rms_norm(const __grid_constant__ AddRmsNormSm90Params params) {
  const std::int64_t start = std::int64_t{blockIdx.x} * params.num_cols;
  float* residual = params.residual + start;
  Eight parts[kParts];
  float squares = 0.0F;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::int64_t col = (std::int64_t{part} * kThreads + threadIdx.x) * kWidth;
    parts[part] = {};
    if (col >= params.num_cols) continue;
    parts[part] = Eight::from(residual + col);
    if (params.x == nullptr) continue;
    const Eight added = Eight::from(static_cast<const __nv_bfloat16*>(params.x) + start + col);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) parts[part].values[i] += added.values[i];
    parts[part].store(residual + col);
  }
#pragma unroll
  for (const Eight& part : parts) {
#pragma unroll
    for (const float value : part.values) squares = fmaf(value, value, squares);
  }
  const float scale = 1.0F / sqrtf(sum_block(squares) / static_cast<float>(params.num_cols) + params.epsilon);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::int64_t col = (std::int64_t{part} * kThreads + threadIdx.x) * kWidth;
    if (col >= params.num_cols) continue;
    const Eight weight = Eight::from(params.weight + col);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) parts[part].values[i] *= scale * weight.values[i];
    parts[part].store(static_cast<__nv_bfloat16*>(params.out) + start + col);
  }
}

}  // namespace

device::CudaStatus embed_sm90(CUstream_st* stream, const EmbedSm90Params& params) {
  if (params.num_tokens == 0) return {};
  embed<<<static_cast<unsigned int>(params.num_tokens), kThreads, 0, stream>>>(params);
  return device::launched("embed");
}

device::CudaStatus add_rms_norm_sm90(CUstream_st* stream, const AddRmsNormSm90Params& params) {
  if (params.num_rows == 0) return {};
  const auto grid = static_cast<unsigned int>(params.num_rows);
  constexpr std::int64_t kCols = std::int64_t{kThreads} * kWidth;
  if (params.num_cols <= kCols) {
    add_rms_norm<1><<<grid, kThreads, 0, stream>>>(params);
  } else if (params.num_cols <= 2 * kCols) {
    add_rms_norm<2><<<grid, kThreads, 0, stream>>>(params);
  } else if (params.num_cols <= 4 * kCols) {
    add_rms_norm<4><<<grid, kThreads, 0, stream>>>(params);
  } else {
    add_rms_norm<8><<<grid, kThreads, 0, stream>>>(params);
  }
  return device::launched("add_rms_norm");
}

}  // namespace thalweg::kernels
