// The measured ceilings that benches compare with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/table.h"

namespace thalweg::device {

/// Copies by loads and stores of all multiprocessors, each thread with 1, 2, 4 or 8 loads of 16 bytes in flight: the
/// copy engines behind cudaMemcpyAsync reach two thirds of that (H200: 2.7 and 4.1 TB/s). `num_bytes` in multiples of
/// 32 KiB.
CudaStatus copy_with_kernel(CUstream_st* stream, void* to, const void* from, std::size_t num_bytes,
                            std::int32_t num_loads);

}  // namespace thalweg::device
