// One block per row, or one warp where a row is short. Thread t takes columns 8 * (t + i * num_threads) and the seven
// after them, for i = 0, 1, ...; threads are then added in a tree. So the order of a row's sum depends on num_cols
// alone: not on the number of rows, nor on the alignment, which only decides whether those eight come in loads of 16
// bytes.
//
// Memory-bound: a row is read once and kept in registers until it is scaled, unless it is longer than those hold.
#include <cuda_bf16.h>

#include "device/cuda/runtime.h"
#include "kernels/norm/rms_norm/sm90.h"

namespace thalweg::kernels::norm {
namespace {

constexpr int kWidth = 8;  // columns that a thread takes at once: 16 bytes of bf16, 32 of fp32

struct Eight {
  float values[kWidth];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void store_one(float* out, float value) { *out = value; }
__device__ void store_one(__nv_bfloat16* out, float value) { *out = __float2bfloat16_rn(value); }

/// Columns [col, col + 8) that lie before num_cols; zero beyond.
template <bool kAligned, typename T>
__device__ Eight load_eight(const T* x, std::int64_t col, std::int64_t num_cols) {
  Eight result = {};
  if (kAligned && col + kWidth <= num_cols) {
    alignas(16) T loaded[kWidth];
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(loaded) / 16); ++part) {
      reinterpret_cast<uint4*>(loaded)[part] = reinterpret_cast<const uint4*>(x + col)[part];
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.values[i] = to_float(loaded[i]);
    return result;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (col + i < num_cols) result.values[i] = to_float(x[col + i]);
  }
  return result;
}

template <bool kAligned, typename T>
__device__ void store_eight(T* out, std::int64_t col, std::int64_t num_cols, const Eight& eight) {
  if (kAligned && col + kWidth <= num_cols) {
    alignas(16) T stored[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) store_one(stored + i, eight.values[i]);
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(stored) / 16); ++part) {
      reinterpret_cast<uint4*>(out + col)[part] = reinterpret_cast<const uint4*>(stored)[part];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (col + i < num_cols) store_one(out + col + i, eight.values[i]);
  }
}

/// The sum over kThreads threads that work on one row; all of them get it.
template <int kThreads>
__device__ float sum_threads(float value, float* warp_sums) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffU, value, distance);
  if (kThreads == 32) return value;
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  return sum;
}

/// kChunks eights per thread stay in registers; 0: rows of any length, read twice.
template <typename X, typename Out, int kThreads, int kChunks, bool kAligned>
__global__ void __launch_bounds__(256) rms_norm_rows(const __grid_constant__ RmsNormSm90Params params) {
  __shared__ float warp_sums[8];
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= params.num_groups * params.rows_per_group) return;  // whole warps, and only where no block waits for them
  const std::int64_t group = row / params.rows_per_group;
  const std::int64_t within = row - group * params.rows_per_group;
  const X* x = static_cast<const X*>(params.x) + group * params.x_group_stride + within * params.x_row_stride;
  Out* out = static_cast<Out*>(params.out) + group * params.out_group_stride + within * params.out_row_stride;
  const std::int64_t num_cols = params.num_cols;
  const std::int64_t first = std::int64_t{threadIdx.x} * kWidth;
  constexpr std::int64_t kStep = std::int64_t{kThreads} * kWidth;

  Eight kept[kChunks == 0 ? 1 : kChunks];
  float squares = 0.0F;
  const auto add = [&](const Eight& eight) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) squares = fmaf(eight.values[i], eight.values[i], squares);
  };
  if constexpr (kChunks > 0) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      kept[chunk] = load_eight<kAligned>(x, first + chunk * kStep, num_cols);
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) add(kept[chunk]);
  } else {
    for (std::int64_t col = first; col < num_cols; col += kStep) add(load_eight<kAligned>(x, col, num_cols));
  }

  const float mean = sum_threads<kThreads>(squares, warp_sums) / static_cast<float>(num_cols);
  const float scale = 1.0F / sqrtf(mean + params.epsilon);
  const auto finish = [&](Eight eight, std::int64_t col) {
    if (col >= num_cols) return;
    Eight weight;
    if (params.weight != nullptr) weight = load_eight<kAligned>(params.weight, col, num_cols);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      eight.values[i] *= scale;
      if (params.weight != nullptr) eight.values[i] *= weight.values[i];
    }
    store_eight<kAligned>(out, col, num_cols, eight);
  };
  if constexpr (kChunks > 0) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) finish(kept[chunk], first + chunk * kStep);
  } else {
    for (std::int64_t col = first; col < num_cols; col += kStep) finish(load_eight<kAligned>(x, col, num_cols), col);
  }
}

template <typename X, typename Out, int kThreads, int kChunks, bool kAligned>
void start(CUstream_st* stream, const RmsNormSm90Params& params) {
  const dim3 block(kThreads, kThreads == 32 ? 8 : 1);
  const std::int64_t num_rows = params.num_groups * params.rows_per_group;
  const auto grid = static_cast<unsigned int>((num_rows + block.y - 1) / block.y);
  rms_norm_rows<X, Out, kThreads, kChunks, kAligned><<<grid, block, 0, stream>>>(params);
}

bool is_aligned_side(const void* first, std::int64_t group_stride_bytes, std::int64_t row_stride_bytes) {
  return reinterpret_cast<std::uintptr_t>(first) % 16 == 0 && group_stride_bytes % 16 == 0 &&
         row_stride_bytes % 16 == 0;
}

template <typename X, typename Out>
void start_for_length(CUstream_st* stream, const RmsNormSm90Params& params) {
  constexpr auto kX = static_cast<std::int64_t>(sizeof(X));
  constexpr auto kOut = static_cast<std::int64_t>(sizeof(Out));
  const bool is_aligned = is_aligned_side(params.x, params.x_group_stride * kX, params.x_row_stride * kX) &&
                          is_aligned_side(params.out, params.out_group_stride * kOut, params.out_row_stride * kOut) &&
                          is_aligned_side(params.weight, 0, 0);
  constexpr std::int64_t kWarpCols = 32 * kWidth;
  constexpr std::int64_t kBlockCols = 256 * kWidth;
  const std::int64_t num_cols = params.num_cols;
  if (num_cols <= kWarpCols) {
    return is_aligned ? start<X, Out, 32, 1, true>(stream, params) : start<X, Out, 32, 0, false>(stream, params);
  }
  if (!is_aligned) return start<X, Out, 256, 0, false>(stream, params);
  if (num_cols <= kBlockCols) return start<X, Out, 256, 1, true>(stream, params);
  if (num_cols <= 2 * kBlockCols) return start<X, Out, 256, 2, true>(stream, params);
  if (num_cols <= 4 * kBlockCols) return start<X, Out, 256, 4, true>(stream, params);
  start<X, Out, 256, 0, true>(stream, params);
}

}  // namespace

device::CudaStatus rms_norm_sm90(CUstream_st* stream, const RmsNormSm90Params& params) {
  if (params.x_is_bf16) {
    start_for_length<__nv_bfloat16, __nv_bfloat16>(stream, params);
  } else if (params.out_is_bf16) {
    start_for_length<float, __nv_bfloat16>(stream, params);
  } else {
    start_for_length<float, float>(stream, params);
  }
  return device::launched("rms_norm");
}

}  // namespace thalweg::kernels::norm
