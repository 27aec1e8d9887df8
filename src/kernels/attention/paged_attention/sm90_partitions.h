// Rows with few queries: decode and verification. Memory-bound: the bar is to read keys and values once at the speed of
// a copy, so one entry of work is one partition of one kv head, all queries of the row and all query heads of the kv
// head together, and a persistent block streams entry after entry through a ring of buffers that never runs dry.
//
// Four warps compute. Of a tile, each scores a quarter of the keys; maxima and probabilities are exchanged through
// shared memory; then each makes a quarter of the dimensions of the output from all keys. A fifth warp copies.
#pragma once

#include "kernels/attention/paged_attention/sm90_device.h"

namespace thalweg::kernels::attention {

inline constexpr int kPartitionThreads = 128;  // that compute
inline constexpr int kPartitionBlocks =
    2;  // per multiprocessor: while one block agrees on maxima, the other multiplies
inline constexpr int kSharedBytes = 113 * 1024;  // of a block

/// kRows is 16, 32 or 64.
template <int kHeadDim, int kRows>
struct PartitionShared {
  static constexpr int kTile = tile_tokens(kHeadDim);
  static constexpr int kBufferBytes = kTile * kHeadDim * 2;
  static constexpr int kQueryStride = kHeadDim + 8;  // eight more against bank conflicts
  static constexpr int kProbabilityStride = kTile + 8;
  static constexpr int kSmallBytes = kRows * (kQueryStride + kProbabilityStride) * 2 + 2 * kQuarters * kRows * 4 + 512;
  static constexpr int kBuffers = (kSharedBytes - kSmallBytes) / kBufferBytes;

  alignas(1024) std::uint8_t buffers[kBuffers][kBufferBytes];  // keys and values in turn
  alignas(16) __nv_bfloat16 queries[kRows][kQueryStride];
  alignas(16) __nv_bfloat16 probabilities[kRows][kProbabilityStride];
  float of_quarters[2][kQuarters][kRows];  // maxima of a tile, of even and odd ones; then sums
  ptx::Barrier full[kBuffers];
  ptx::Barrier empty[kBuffers];
  bool is_last;
};

}  // namespace thalweg::kernels::attention
