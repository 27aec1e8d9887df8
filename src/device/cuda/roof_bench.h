// The measured ceilings that benches compare with.
#pragma once

#include <cstddef>

#include "device/cuda/table.h"

namespace thalweg::device {

/// Copies by loads and stores of all multiprocessors: the copy engines behind cudaMemcpyAsync reach 63 % of what they
/// do (H200). `num_bytes` in whole multiples of 16 KiB.
CudaStatus copy_with_kernel(CUstream_st* stream, void* to, const void* from, std::size_t num_bytes);

}  // namespace thalweg::device
