#include <cstring>

#include "device/cuda/runtime.h"

namespace thalweg::device {
namespace {

CudaStatus driver_version(std::int32_t* version) {
  return status_of("cudaDriverGetVersion", cudaDriverGetVersion(version));
}

CudaStatus num_devices(std::int32_t* num_devices) {
  const cudaError_t code = cudaGetDeviceCount(num_devices);
  if (code == cudaErrorNoDevice) {
    cudaGetLastError();
    *num_devices = 0;
    return {};
  }
  return status_of("cudaGetDeviceCount", code);
}

CudaStatus properties(std::int32_t device, CudaProperties* properties) {
  cudaDeviceProp found;
  if (const cudaError_t code = cudaGetDeviceProperties(&found, device); code != cudaSuccess) {
    return status_of("cudaGetDeviceProperties", code);
  }
  *properties = {.major = found.major,
                 .minor = found.minor,
                 .num_multiprocessors = found.multiProcessorCount,
                 .max_shared_bytes_per_block = static_cast<std::int32_t>(found.sharedMemPerBlockOptin),
                 .l2_bytes = found.l2CacheSize,
                 .memory_bytes = static_cast<std::int64_t>(found.totalGlobalMem)};
  static_assert(sizeof(properties->name) == sizeof(found.name));
  std::memcpy(properties->name, found.name, sizeof(found.name));
  return {};
}

CudaStatus make_current(std::int32_t device) { return status_of("cudaSetDevice", cudaSetDevice(device)); }

CudaStatus memory(std::int32_t device, std::size_t* free_bytes, std::size_t* total_bytes) {
  if (const CudaStatus status = make_current(device); status.failure != CudaFailure::kNone) return status;
  return status_of("cudaMemGetInfo", cudaMemGetInfo(free_bytes, total_bytes));
}

CudaStatus can_access_peer(std::int32_t device, std::int32_t peer, std::int32_t* can) {
  return status_of("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(can, device, peer));
}

CudaStatus enable_peer_access(std::int32_t device, std::int32_t peer) {
  if (const CudaStatus status = make_current(device); status.failure != CudaFailure::kNone) return status;
  const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return {};
  }
  return status_of("cudaDeviceEnablePeerAccess", code);
}

}  // namespace

void fill_in_devices(CudaTable& table) {
  table.driver_version = driver_version;
  table.num_devices = num_devices;
  table.properties = properties;
  table.make_current = make_current;
  table.memory = memory;
  table.can_access_peer = can_access_peer;
  table.enable_peer_access = enable_peer_access;
}

}  // namespace thalweg::device
