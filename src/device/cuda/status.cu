#include "device/cuda/runtime.h"

namespace thalweg::device {
namespace {

CudaFailure failure_of(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return CudaFailure::kNone;
    case cudaErrorMemoryAllocation:
      return CudaFailure::kOutOfMemory;
    // Those of which CUDA's documentation says that the process must be ended and begun anew.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return CudaFailure::kSticky;
    default:
      return CudaFailure::kOther;
  }
}

}  // namespace

CudaStatus status_of(const char* call, cudaError_t code) {
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return {failure_of(code), code, call, cudaGetErrorName(code), cudaGetErrorString(code)};
}

// The runtime numbers its errors as the driver does.
CudaStatus status_of(const char* call, CUresult code) { return status_of(call, static_cast<cudaError_t>(code)); }

}  // namespace thalweg::device
