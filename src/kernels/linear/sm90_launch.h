// Library side: one product, prepared, and the files that hold the kernels' instances.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "device/cuda/runtime.h"
#include "kernels/linear/sm90.h"
#include "kernels/linear/sm90_gemm.h"
#include "kernels/linear/sm90_stream.h"

namespace thalweg::kernels::sm90 {

struct Launch {
  CUstream_st* stream;
  std::int32_t num_blocks;
  std::int32_t num_threads;
  std::int32_t shared_bytes;
  std::int32_t cluster;
  bool starts_early;
};

template <typename Args>
device::CudaStatus launch(void (*kernel)(CUtensorMap, CUtensorMap, Args), const Launch& how, const CUtensorMap& x,
                          const CUtensorMap& weight, const Args& args, const char* name) {
  cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared_bytes);
  if (code != cudaSuccess) return device::status_of("cudaFuncSetAttribute", code);
  cudaLaunchAttribute attributes[2] = {};
  unsigned num_attributes = 0;
  if (how.cluster > 1) {
    attributes[num_attributes].id = cudaLaunchAttributeClusterDimension;
    attributes[num_attributes].val.clusterDim = {static_cast<unsigned>(how.cluster), 1, 1};
    ++num_attributes;
  }
  if (how.starts_early) {
    attributes[num_attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[num_attributes].val.programmaticStreamSerializationAllowed = 1;
    ++num_attributes;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(how.num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(how.num_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(how.shared_bytes);
  config.stream = how.stream;
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  return device::status_of(name, cudaLaunchKernelEx(&config, kernel, x, weight, args));
}

/// A product by the kernel whose tiles have so many rows of W: 64 or 128, or 256 in clusters of two blocks.
struct GemmLaunch {
  std::int32_t tile_columns;
  CUstream_st* stream;
  std::int32_t num_multiprocessors;
  bool starts_early;
  CUtensorMap x;
  CUtensorMap weight;
  GemmArgs args;
};

device::CudaStatus gemm_bf16(const GemmLaunch& gemm);
device::CudaStatus gemm_fp8(const GemmLaunch& gemm);
device::CudaStatus gemm_fp8_blocks(const GemmLaunch& gemm);

template <ptx::Operand kOperand, Sums kSums, int kColumns, int kCluster>
device::CudaStatus launch_gemm(const GemmLaunch& gemm, const char* name) {
  Launch how = {};
  how.stream = gemm.stream;
  const int num_tiles = gemm.args.num_token_tiles * gemm.args.num_column_tiles;
  how.num_blocks = kCluster * std::min(num_tiles, gemm.num_multiprocessors / kCluster);
  how.num_threads = kGemmThreads;
  how.shared_bytes = GemmStage<kColumns>::kSharedBytes;
  how.cluster = kCluster;
  how.starts_early = gemm.starts_early;
  return launch(gemm_kernel<kOperand, kSums, kColumns, kCluster>, how, gemm.x, gemm.weight, gemm.args, name);
}

template <ptx::Operand kOperand, Sums kSums>
device::CudaStatus choose_gemm(const GemmLaunch& gemm, const char* name) {
  if (gemm.tile_columns == 256) return launch_gemm<kOperand, kSums, 256, 2>(gemm, name);
  if (gemm.tile_columns == 128) return launch_gemm<kOperand, kSums, 128, 1>(gemm, name);
  return launch_gemm<kOperand, kSums, 64, 1>(gemm, name);
}

struct StreamLaunch {
  Launch how;
  std::int32_t tokens;  // 8, 16, 32 or 64
  bool is_wide;         // two warpgroups
  CUtensorMap x;
  CUtensorMap weight;
  StreamArgs args;
};

device::CudaStatus stream_bf16(const StreamLaunch& stream);
device::CudaStatus stream_fp8(const StreamLaunch& stream);
device::CudaStatus stream_fp8_blocks(const StreamLaunch& stream);
device::CudaStatus stream_q4(const StreamLaunch& stream);

template <LinearSm90Weights kWeights, int kTokens>
device::CudaStatus launch_stream(const StreamLaunch& stream, const char* name) {
  const auto kernel = stream.is_wide ? stream_kernel<kWeights, kTokens, true> : stream_kernel<kWeights, kTokens, false>;
  return launch(kernel, stream.how, stream.x, stream.weight, stream.args, name);
}

template <LinearSm90Weights kWeights>
device::CudaStatus choose_stream(const StreamLaunch& stream, const char* name) {
  switch (stream.tokens) {
    case 8:
      return launch_stream<kWeights, 8>(stream, name);
    case 16:
      return launch_stream<kWeights, 16>(stream, name);
    case 32:
      return launch_stream<kWeights, 32>(stream, name);
    default:
      return launch_stream<kWeights, 64>(stream, name);
  }
}

/// out[num_rows, 64 num_panels] bf16.
device::CudaStatus expand_q4(CUstream_st* stream, const Q4UnitSm90* units, std::int64_t num_rows,
                             std::int64_t num_panels, void* out);

}  // namespace thalweg::kernels::sm90
