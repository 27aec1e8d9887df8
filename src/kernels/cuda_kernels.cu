#include "device/cuda/runtime.h"
#include "kernels/cuda_kernels.h"

namespace thalweg {
namespace {

constexpr kernels::CudaKernels kKernels = {
    .rms_norm = kernels::norm::rms_norm_sm90,
};

device::CudaTable make_table() {
  device::CudaTable table = {.border = THALWEG_CUDA_BORDER, .kernels = &kKernels};
  device::fill_in_devices(table);
  device::fill_in_streams(table);
  device::fill_in_memory(table);
  device::fill_in_graphs(table);
  return table;
}

}  // namespace
}  // namespace thalweg

const thalweg::device::CudaTable* thalweg_cuda_table() {
  static const thalweg::device::CudaTable table = thalweg::make_table();
  return &table;
}
