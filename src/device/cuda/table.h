// The border between the program and libthalweg_cuda.so, which holds every call of CUDA and every GPU kernel.
//
// Both sides include this header: the program as C++23 without a CUDA header, the library as CUDA C++20. So it holds
// plain structs and pointers to functions only. Both are built with the same text of it, or refuse each other:
// THALWEG_CUDA_BORDER is the hash of all border headers (cmake/cuda.cmake).
#pragma once

#include <cstddef>
#include <cstdint>

// CUDA's own names of what cudaStream_t, cudaEvent_t and cudaGraphExec_t point to.
struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace thalweg::kernels {
struct CudaKernels;  // kernels/cuda_kernels.h
}

namespace thalweg::device {

enum class CudaFailure : std::int32_t {
  kNone,
  kOutOfMemory,
  kSticky,  // the device's context is lost; only a new process gets another
  kOther,
};

/// What a call across the border came to. The strings are static; all is zero when nothing failed.
struct CudaStatus {
  CudaFailure failure;
  std::int32_t code;  // cudaError_t or CUresult
  const char* call;   // e.g. "cudaMemcpyAsync", or the kernel that was launched
  const char* name;   // e.g. "cudaErrorInvalidValue"
  const char* text;   // CUDA's sentence
};

struct CudaProperties {
  char name[256];
  std::int32_t major;  // compute capability
  std::int32_t minor;
  std::int32_t num_multiprocessors;
  std::int32_t max_shared_bytes_per_block;  // with the opt-in above 48 KiB
  std::int64_t l2_bytes;
  std::int64_t memory_bytes;
};

/// Starts a kernel on a stream of the current device and returns before it is done.
template <typename Params>
using CudaLaunch = CudaStatus(CUstream_st* stream, const Params& params);

/// Functions that take a device's ordinal make it the calling thread's current one.
struct CudaTable {
  const char* border;  // THALWEG_CUDA_BORDER of the library

  // Devices. These three work without a context and cost no device memory; the version is 1000 * major + 10 * minor of
  // the newest CUDA that the driver serves, 0 without a driver.
  CudaStatus (*driver_version)(std::int32_t* version);
  CudaStatus (*num_devices)(std::int32_t* num_devices);
  CudaStatus (*properties)(std::int32_t device, CudaProperties* properties);
  CudaStatus (*make_current)(std::int32_t device);  // creates the context at first, about 0.3 s
  CudaStatus (*memory)(std::int32_t device, std::size_t* free_bytes, std::size_t* total_bytes);
  CudaStatus (*can_access_peer)(std::int32_t device, std::int32_t peer, std::int32_t* can);
  CudaStatus (*enable_peer_access)(std::int32_t device, std::int32_t peer);  // again is no failure

  // Streams and events.
  CudaStatus (*stream_create)(std::int32_t device, CUstream_st** stream);
  CudaStatus (*stream_destroy)(CUstream_st* stream);
  CudaStatus (*stream_synchronize)(CUstream_st* stream);
  CudaStatus (*stream_wait)(CUstream_st* stream, CUevent_st* event);
  CudaStatus (*event_create)(std::int32_t device, bool with_timing, CUevent_st** event);
  CudaStatus (*event_destroy)(CUevent_st* event);
  CudaStatus (*event_record)(CUevent_st* event, CUstream_st* stream);
  CudaStatus (*event_synchronize)(CUevent_st* event);
  CudaStatus (*event_is_done)(CUevent_st* event, bool* is_done);
  CudaStatus (*event_elapsed_ms)(CUevent_st* first, CUevent_st* last, float* elapsed_ms);
  CudaStatus (*copy)(CUstream_st* stream, void* to, const void* from, std::size_t num_bytes);  // any direction
  CudaStatus (*fill)(CUstream_st* stream, void* to, std::uint8_t value, std::size_t num_bytes);

  // Pinned host memory, which every device may read.
  CudaStatus (*host_allocate)(std::int32_t device, std::size_t num_bytes, void** memory);
  CudaStatus (*host_free)(void* memory);

  // Virtual memory: addresses are reserved, memory is created, and the one is mapped to the other. Sizes are multiples
  // of the granularity. `devices` may use what is mapped.
  CudaStatus (*memory_granularity)(std::int32_t device, std::size_t* num_bytes);
  CudaStatus (*address_reserve)(std::int32_t device, std::size_t num_bytes, std::uint64_t* address);
  CudaStatus (*address_free)(std::uint64_t address, std::size_t num_bytes);
  CudaStatus (*memory_create)(std::int32_t device, std::size_t num_bytes, std::uint64_t* memory);
  CudaStatus (*memory_release)(std::uint64_t memory);
  CudaStatus (*memory_map)(std::uint64_t address, std::size_t num_bytes, std::uint64_t memory,
                           const std::int32_t* devices, std::int32_t num_devices);
  CudaStatus (*memory_unmap)(std::uint64_t address, std::size_t num_bytes);

  // Graphs. Capture sees the calling thread alone.
  CudaStatus (*capture_begin)(CUstream_st* stream);
  CudaStatus (*capture_end)(CUstream_st* stream, CUgraphExec_st** graph);  // and instantiates
  CudaStatus (*graph_launch)(CUgraphExec_st* graph, CUstream_st* stream);
  CudaStatus (*graph_destroy)(CUgraphExec_st* graph);

  const kernels::CudaKernels* kernels;
};

}  // namespace thalweg::device

/// The library's one exported symbol.
extern "C" const thalweg::device::CudaTable* thalweg_cuda_table();
