// What dispatch.cc hands to one version: plain pointers, the share of one task. Files compiled for a wide instruction
// set include this and no standard header with code in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/dtype.h"

namespace thalweg::kernels::attention {

/// The blocks of one sequence in one layer.
struct SequenceBlocks {
  std::byte* base = nullptr;
  std::int64_t block_stride = 0;              // bytes
  const std::int32_t* block_table = nullptr;  // block ids in the order of positions
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 0;
  device::DType dtype = device::DType::kF16;
};

struct WriteKvArgs {
  SequenceBlocks blocks;
  const float* k = nullptr;  // [num_tokens, num_kv_heads, head_dim]
  std::int64_t k_stride = 0;
  const float* v = nullptr;
  std::int64_t v_stride = 0;
  const std::int32_t* positions = nullptr;  // [num_tokens]
  std::int32_t num_tokens = 0;
};

/// Keys are taken in tiles of 64 positions and partitions of 256, both counted from position 0. These two numbers,
/// not the batch, fix the order of all sums.
inline constexpr std::int32_t kTile = 64;
inline constexpr std::int32_t kPartition = 256;

/// Limits of the fast versions; beyond them the reference serves.
inline constexpr std::int32_t kMaxHeadDim = 256;
inline constexpr std::int32_t kMaxRows = 128;  // queries times heads of one task

/// Consecutive queries of one sequence, and the heads that share one kv head. Row r of the task is query
/// r / num_group_heads, head r % num_group_heads.
struct AttendArgs {
  SequenceBlocks blocks;  // block_size a multiple of 16, head_dim at most kMaxHeadDim
  std::int32_t kv_head = 0;
  std::int32_t num_group_heads = 0;
  const float* q = nullptr;  // [num_queries, num_group_heads, head_dim], token stride q_stride
  std::int64_t q_stride = 0;
  std::int32_t num_queries = 0;
  std::int32_t first_position = 0;
  float scale = 1.0F;
  std::int32_t window = 0;
  /// Null: all partitions, the result goes to `out`. Else: partition `partition` alone, and its softmax state goes
  /// here: for each row the highest score, the sum of weights and the weighted sum of values, [num_rows, 2 + head_dim].
  float* partial = nullptr;
  std::int32_t partition = 0;
  float* out = nullptr;  // as q
  std::int64_t out_stride = 0;
  float* scratch = nullptr;  // kScratchFloats of this thread, 64-byte aligned
};

inline constexpr std::int64_t kScratchFloats = 2 * kMaxRows * kMaxHeadDim + kMaxRows * kTile;

/// Joins the partitions' states of one task in rising order.
struct CombineArgs {
  const float* partials = nullptr;  // [num_partitions, num_queries * num_group_heads, 2 + head_dim]
  std::int32_t num_partitions = 0;
  std::int32_t num_queries = 0;
  std::int32_t num_group_heads = 0;
  std::int32_t head_dim = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

void write_kv_avx2(const WriteKvArgs& args);
void attend_avx2(const AttendArgs& args);
void combine_avx2(const CombineArgs& args);

void write_kv_avx512(const WriteKvArgs& args);
void attend_avx512(const AttendArgs& args);
void combine_avx512(const CombineArgs& args);

}  // namespace thalweg::kernels::attention
