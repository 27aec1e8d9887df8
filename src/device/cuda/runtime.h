// Library side: from CUDA's return codes to CudaStatus, and the parts that the table is put together from.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "device/cuda/table.h"

namespace thalweg::device {

/// `call` is a literal. Clears the runtime's last error, or the next launch would be blamed for this one.
CudaStatus status_of(const char* call, cudaError_t code);
CudaStatus status_of(const char* call, CUresult code);

/// After a launch with <<<>>>: whether it started. Faults of a running kernel show at a later synchronisation.
inline CudaStatus launched(const char* kernel) { return status_of(kernel, cudaGetLastError()); }

/// The driver's function of this name, as CUDA 13.0 declares it. The library is not linked with libcuda, so that it can
/// be loaded, and say why it cannot work, where no driver is.
template <typename Function>
CudaStatus find_driver_function(const char* name, Function** function) {
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  void* address = nullptr;
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &address, CUDART_VERSION, cudaEnableDefault, &found);
  if (code != cudaSuccess) return status_of("cudaGetDriverEntryPointByVersion", code);
  if (found != cudaDriverEntryPointSuccess) return status_of(name, cudaErrorSymbolNotFound);
  *function = reinterpret_cast<Function*>(address);
  return {};
}

void fill_in_devices(CudaTable& table);
void fill_in_streams(CudaTable& table);
void fill_in_memory(CudaTable& table);
void fill_in_graphs(CudaTable& table);

}  // namespace thalweg::device
