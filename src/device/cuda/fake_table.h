// A GPU made of host memory, for tests of what the program does about drivers, devices and memory. Streams do
// everything at once, and fail where they are told to.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <string>

#include "device/cuda/table.h"

namespace thalweg::device {

struct FakeCuda {
  std::int32_t driver_version = 13000;
  std::int32_t num_devices = 1;
  std::int32_t major = 9;
  std::int32_t minor = 0;
  std::size_t total_bytes = std::size_t{1} << 30;
  CudaStatus next_synchronize = {};  // what waiting comes to
  CudaStatus next_copy = {};

  std::size_t used_bytes = 0;
  int num_handles = 0;  // streams, events, graphs and pinned memory that are alive
  int num_mappings = 0;
  std::map<std::uint64_t, std::size_t> memories;  // created and not released
};

/// The table's functions carry no context, so the fake is one per process; tests begin with a fresh one.
inline FakeCuda& fake_cuda() {
  static FakeCuda fake;
  return fake;
}

inline constexpr std::size_t kFakeGranularity = std::size_t{2} << 20;

namespace fake {

inline CudaStatus failure(CudaFailure kind, std::int32_t code, const char* call, const char* name, const char* text) {
  return {kind, code, call, name, text};
}

template <typename Handle>
CudaStatus make_handle(Handle** handle) {
  *handle = reinterpret_cast<Handle*>(std::uintptr_t{64});
  ++fake_cuda().num_handles;
  return {};
}

template <typename Handle>
CudaStatus drop_handle(Handle*) {
  --fake_cuda().num_handles;
  return {};
}

inline CudaStatus properties(std::int32_t, CudaProperties* properties) {
  *properties = {.name = "NVIDIA Fake",
                 .major = fake_cuda().major,
                 .minor = fake_cuda().minor,
                 .num_multiprocessors = 132,
                 .memory_bytes = static_cast<std::int64_t>(fake_cuda().total_bytes)};
  return {};
}

inline CudaStatus memory(std::int32_t, std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = fake_cuda().total_bytes - fake_cuda().used_bytes;
  *total_bytes = fake_cuda().total_bytes;
  return {};
}

inline CudaStatus copy(CUstream_st*, void* to, const void* from, std::size_t num_bytes) {
  if (fake_cuda().next_copy.failure == CudaFailure::kNone) std::memcpy(to, from, num_bytes);
  return fake_cuda().next_copy;
}

inline CudaStatus address_reserve(std::int32_t, std::size_t num_bytes, std::uint64_t* address) {
  void* mapped = mmap(nullptr, num_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<std::uint64_t>(mapped);
  return {};
}

inline CudaStatus address_free(std::uint64_t address, std::size_t num_bytes) {
  munmap(reinterpret_cast<void*>(address), num_bytes);
  return {};
}

inline CudaStatus memory_create(std::int32_t, std::size_t num_bytes, std::uint64_t* memory) {
  FakeCuda& cuda = fake_cuda();
  if (cuda.total_bytes - cuda.used_bytes < num_bytes) {
    return failure(CudaFailure::kOutOfMemory, 2, "cuMemCreate", "cudaErrorMemoryAllocation", "out of memory");
  }
  cuda.used_bytes += num_bytes;
  *memory = cuda.memories.empty() ? 1 : cuda.memories.rbegin()->first + 1;
  cuda.memories[*memory] = num_bytes;
  return {};
}

inline CudaStatus memory_release(std::uint64_t memory) {
  fake_cuda().used_bytes -= fake_cuda().memories.at(memory);
  fake_cuda().memories.erase(memory);
  return {};
}

inline CudaStatus memory_map(std::uint64_t address, std::size_t num_bytes, std::uint64_t, const std::int32_t*,
                             std::int32_t) {
  ++fake_cuda().num_mappings;
  mprotect(reinterpret_cast<void*>(address), num_bytes, PROT_READ | PROT_WRITE);
  return {};
}

inline CudaStatus memory_unmap(std::uint64_t address, std::size_t num_bytes) {
  --fake_cuda().num_mappings;
  madvise(reinterpret_cast<void*>(address), num_bytes, MADV_DONTNEED);
  mprotect(reinterpret_cast<void*>(address), num_bytes, PROT_NONE);
  return {};
}

}  // namespace fake

/// A fresh fake, and its table.
inline CudaTable make_fake_table() {
  fake_cuda() = {};
  CudaTable table = {};
  table.border = THALWEG_CUDA_BORDER;
  table.driver_version = [](std::int32_t* version) {
    *version = fake_cuda().driver_version;
    return CudaStatus{};
  };
  table.num_devices = [](std::int32_t* num_devices) {
    *num_devices = fake_cuda().num_devices;
    return CudaStatus{};
  };
  table.properties = fake::properties;
  table.make_current = [](std::int32_t) { return CudaStatus{}; };
  table.memory = fake::memory;
  table.can_access_peer = [](std::int32_t, std::int32_t, std::int32_t* can) {
    *can = 0;
    return CudaStatus{};
  };
  table.stream_create = [](std::int32_t, CUstream_st** stream) { return fake::make_handle(stream); };
  table.stream_destroy = fake::drop_handle<CUstream_st>;
  table.stream_synchronize = [](CUstream_st*) { return fake_cuda().next_synchronize; };
  table.event_create = [](std::int32_t, bool, CUevent_st** event) { return fake::make_handle(event); };
  table.event_destroy = fake::drop_handle<CUevent_st>;
  table.event_record = [](CUevent_st*, CUstream_st*) { return CudaStatus{}; };
  table.event_synchronize = [](CUevent_st*) { return fake_cuda().next_synchronize; };
  table.copy = fake::copy;
  table.host_allocate = [](std::int32_t, std::size_t num_bytes, void** memory) {
    ++fake_cuda().num_handles;
    *memory = ::operator new(num_bytes);
    return CudaStatus{};
  };
  table.host_free = [](void* memory) {
    --fake_cuda().num_handles;
    ::operator delete(memory);
    return CudaStatus{};
  };
  table.memory_granularity = [](std::int32_t, std::size_t* num_bytes) {
    *num_bytes = kFakeGranularity;
    return CudaStatus{};
  };
  table.address_reserve = fake::address_reserve;
  table.address_free = fake::address_free;
  table.memory_create = fake::memory_create;
  table.memory_release = fake::memory_release;
  table.memory_map = fake::memory_map;
  table.memory_unmap = fake::memory_unmap;
  table.capture_begin = [](CUstream_st*) { return CudaStatus{}; };
  table.capture_end = [](CUstream_st*, CUgraphExec_st** graph) { return fake::make_handle(graph); };
  table.graph_destroy = fake::drop_handle<CUgraphExec_st>;
  return table;
}

}  // namespace thalweg::device
