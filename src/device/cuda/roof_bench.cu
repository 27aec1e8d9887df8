#include "device/cuda/roof_bench.h"
#include "device/cuda/runtime.h"

namespace thalweg::device {
namespace {

constexpr unsigned int kThreads = 256;

template <unsigned int kLoads>
__global__ void __launch_bounds__(kThreads) copy(uint4* to, const uint4* from) {
  const std::size_t first = std::size_t{blockIdx.x} * kThreads * kLoads + threadIdx.x;
  uint4 loaded[kLoads];
#pragma unroll
  for (unsigned int i = 0; i < kLoads; ++i) loaded[i] = __ldcs(from + first + i * kThreads);
#pragma unroll
  for (unsigned int i = 0; i < kLoads; ++i) __stcs(to + first + i * kThreads, loaded[i]);
}

template <unsigned int kLoads>
void start(CUstream_st* stream, void* to, const void* from, std::size_t num_bytes) {
  const auto num_blocks = static_cast<unsigned int>(num_bytes / (kThreads * kLoads * sizeof(uint4)));
  copy<kLoads><<<num_blocks, kThreads, 0, stream>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from));
}

}  // namespace

CudaStatus copy_with_kernel(CUstream_st* stream, void* to, const void* from, std::size_t num_bytes,
                            std::int32_t num_loads) {
  switch (num_loads) {
    case 1:
      start<1>(stream, to, from, num_bytes);
      break;
    case 2:
      start<2>(stream, to, from, num_bytes);
      break;
    case 4:
      start<4>(stream, to, from, num_bytes);
      break;
    case 8:
      start<8>(stream, to, from, num_bytes);
      break;
    default:
      return status_of("copy_with_kernel", cudaErrorInvalidValue);
  }
  return launched("copy_with_kernel");
}

}  // namespace thalweg::device
