// Finds out whether this process can use GPUs, and loads libthalweg_cuda.so if it can.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/table.h"
#include "thalweg/error.h"

namespace thalweg::device {

/// CUDA 13.0, which NVIDIA's drivers serve from 580 on.
inline constexpr std::int32_t kMinCudaVersion = 13000;

struct CudaFiles {
  std::string driver = "libcuda.so.1";  // NVIDIA's driver
  std::string library;                  // ours; empty: $THALWEG_CUDA_LIBRARY, or libthalweg_cuda.so beside the program
};

/// The table, which lives as long as the process: CUDA cannot be unloaded. kNotFound when there is no driver or no
/// library, kFailedPrecondition when the driver is too old or the library of another build; the message is for people.
Result<const CudaTable*> load_cuda_library(const CudaFiles& files = {});

/// The two checks of a loaded table.
Status check_cuda_border(const CudaTable& table, const std::string& library);
Status check_cuda_driver(const CudaTable& table);

}  // namespace thalweg::device
