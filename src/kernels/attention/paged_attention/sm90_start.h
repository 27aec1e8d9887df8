// Starting the kernels of paged attention: grids that fill the device once and stay.
#pragma once

#include "device/cuda/runtime.h"
#include "kernels/attention/paged_attention/sm90.h"

namespace thalweg::kernels::attention {

/// Rows that the plan cuts by keys, and rows that it cuts by queries.
PagedAttentionSm90 attend_partitions_sm90;
PagedAttentionSm90 attend_tiles_sm90;

inline device::CudaStatus start_persistent(const char* name, void (*kernel)(PagedAttentionSm90Params),
                                           int blocks_per_multiprocessor, int num_threads, int shared_bytes,
                                           CUstream_st* stream, const PagedAttentionSm90Params& params) {
  int current = 0;
  cudaError_t error = cudaGetDevice(&current);
  if (error != cudaSuccess) return device::status_of("cudaGetDevice", error);
  int num_multiprocessors = 0;
  error = cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, current);
  if (error != cudaSuccess) return device::status_of("cudaDeviceGetAttribute", error);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return device::status_of("cudaFuncSetAttribute", error);
  kernel<<<blocks_per_multiprocessor * num_multiprocessors, num_threads, shared_bytes, stream>>>(params);
  return device::launched(name);
}

}  // namespace thalweg::kernels::attention
