// Pinned host memory, and the virtual-memory functions, which only the driver's own interface has.
#include "device/cuda/runtime.h"

namespace thalweg::device {
namespace {

constexpr std::int32_t kMaxDevices = 16;

struct DriverFunctions {
  CudaStatus status = {};  // of finding them
  decltype(cuMemGetAllocationGranularity)* granularity = nullptr;
  decltype(cuMemAddressReserve)* address_reserve = nullptr;
  decltype(cuMemAddressFree)* address_free = nullptr;
  decltype(cuMemCreate)* create = nullptr;
  decltype(cuMemRelease)* release = nullptr;
  decltype(cuMemMap)* map = nullptr;
  decltype(cuMemUnmap)* unmap = nullptr;
  decltype(cuMemSetAccess)* set_access = nullptr;
};

DriverFunctions find_driver_functions() {
  DriverFunctions found;
  const auto find = [&](const char* name, auto** function) {
    if (found.status.failure == CudaFailure::kNone) found.status = find_driver_function(name, function);
  };
  find("cuMemGetAllocationGranularity", &found.granularity);
  find("cuMemAddressReserve", &found.address_reserve);
  find("cuMemAddressFree", &found.address_free);
  find("cuMemCreate", &found.create);
  find("cuMemRelease", &found.release);
  find("cuMemMap", &found.map);
  find("cuMemUnmap", &found.unmap);
  find("cuMemSetAccess", &found.set_access);
  return found;
}

const DriverFunctions& driver() {
  static const DriverFunctions functions = find_driver_functions();
  return functions;
}

/// Makes `device` current, so that the driver is initialised, and finds the driver's functions.
CudaStatus begin(std::int32_t device) {
  if (const cudaError_t code = cudaSetDevice(device); code != cudaSuccess) return status_of("cudaSetDevice", code);
  return driver().status;
}

CUmemAllocationProp memory_of(std::int32_t device) {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return kind;
}

CudaStatus host_allocate(std::int32_t device, std::size_t num_bytes, void** memory) {
  if (const cudaError_t code = cudaSetDevice(device); code != cudaSuccess) return status_of("cudaSetDevice", code);
  return status_of("cudaHostAlloc", cudaHostAlloc(memory, num_bytes, cudaHostAllocPortable));
}

CudaStatus host_free(void* memory) { return status_of("cudaFreeHost", cudaFreeHost(memory)); }

CudaStatus memory_granularity(std::int32_t device, std::size_t* num_bytes) {
  if (const CudaStatus status = begin(device); status.failure != CudaFailure::kNone) return status;
  const CUmemAllocationProp kind = memory_of(device);
  return status_of("cuMemGetAllocationGranularity",
                   driver().granularity(num_bytes, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

CudaStatus address_reserve(std::int32_t device, std::size_t num_bytes, std::uint64_t* address) {
  if (const CudaStatus status = begin(device); status.failure != CudaFailure::kNone) return status;
  CUdeviceptr reserved = 0;
  const CUresult code = driver().address_reserve(&reserved, num_bytes, 0, 0, 0);
  *address = reserved;
  return status_of("cuMemAddressReserve", code);
}

CudaStatus address_free(std::uint64_t address, std::size_t num_bytes) {
  return status_of("cuMemAddressFree", driver().address_free(address, num_bytes));
}

CudaStatus memory_create(std::int32_t device, std::size_t num_bytes, std::uint64_t* memory) {
  if (const CudaStatus status = begin(device); status.failure != CudaFailure::kNone) return status;
  const CUmemAllocationProp kind = memory_of(device);
  CUmemGenericAllocationHandle created = 0;
  const CUresult code = driver().create(&created, num_bytes, &kind, 0);
  *memory = created;
  return status_of("cuMemCreate", code);
}

CudaStatus memory_release(std::uint64_t memory) { return status_of("cuMemRelease", driver().release(memory)); }

CudaStatus memory_map(std::uint64_t address, std::size_t num_bytes, std::uint64_t memory, const std::int32_t* devices,
                      std::int32_t num_devices) {
  if (num_devices > kMaxDevices) return status_of("cuMemSetAccess", CUDA_ERROR_INVALID_VALUE);
  if (const CUresult code = driver().map(address, num_bytes, 0, memory, 0); code != CUDA_SUCCESS) {
    return status_of("cuMemMap", code);
  }
  CUmemAccessDesc access[kMaxDevices] = {};
  for (std::int32_t i = 0; i < num_devices; ++i) {
    access[i].location = {CU_MEM_LOCATION_TYPE_DEVICE, devices[i]};
    access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  const CUresult code = driver().set_access(address, num_bytes, access, static_cast<std::size_t>(num_devices));
  if (code != CUDA_SUCCESS) driver().unmap(address, num_bytes);
  return status_of("cuMemSetAccess", code);
}

CudaStatus memory_unmap(std::uint64_t address, std::size_t num_bytes) {
  return status_of("cuMemUnmap", driver().unmap(address, num_bytes));
}

}  // namespace

void fill_in_memory(CudaTable& table) {
  table.host_allocate = host_allocate;
  table.host_free = host_free;
  table.memory_granularity = memory_granularity;
  table.address_reserve = address_reserve;
  table.address_free = address_free;
  table.memory_create = memory_create;
  table.memory_release = memory_release;
  table.memory_map = memory_map;
  table.memory_unmap = memory_unmap;
}

}  // namespace thalweg::device
