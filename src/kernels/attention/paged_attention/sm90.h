// Border: attention over the paged KV cache on the GPU. All pointers are device memory; nothing is read from the host
// after the call, so a captured graph stays true while the arrays' contents change.
//
// Numeric contract, as in kernels/attention/paged_attention.h: a query's result depends on its position, the window and
// head_dim alone. Scores, softmax and sums in fp32, probabilities rounded to bf16 for the product with the values. Rows
// with few queries and rows with many are computed by different kernels with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/table.h"

namespace thalweg::kernels::attention {

struct PagedBatchSm90 {
  const std::int32_t* cu_seqlens;  // [num_rows + 1]
  const std::int32_t*
      context_lens;  // [num_rows], this step's tokens included: a row's last query is at context_len - 1
  const std::int32_t* block_tables;  // [num_rows, max_blocks_per_row]
  std::int32_t max_blocks_per_row;
  std::int32_t num_rows;
  std::int32_t num_tokens;  // capacity: cu_seqlens[num_rows] may be less
};

inline constexpr std::int32_t kPartitionEntryInts = 8;
inline constexpr std::int32_t kTileEntryInts = 4;

/// Who computes what, made on the device once a step and used by all layers of one window. 16-byte aligned.
struct AttentionPlanSm90 {
  std::int32_t* counts;       // [2]: entries of partitions, entries of tiles
  std::int32_t* partitions;   // [max_partitions, kPartitionEntryInts]: rows of few queries
  std::int32_t* tiles;        // [max_tiles, kTileEntryInts]: rows of many queries, costly ones first
  std::int32_t* tile_drafts;  // [max_tiles, kTileEntryInts], scratch
  std::int32_t* arrivals;     // [num_rows, num_kv_heads]
  std::int32_t* token_rows;   // [num_tokens]; -1 after the last token
  std::int32_t max_partitions;
  std::int32_t max_tiles;
};

/// A sequence of at most so many queries times heads per kv head is cut by keys, any other by queries. Nothing but
/// speed depends on it: cutting by keys fills the device whatever the batch, cutting by queries multiplies faster once
/// there is enough to cut.
inline constexpr std::int32_t kMaxFewRows = 64;
constexpr std::int32_t max_few_rows(std::int32_t num_rows, std::int32_t num_kv_heads) {
  return num_rows * num_kv_heads < 256 ? kMaxFewRows : 16;
}
/// Of a tile: queries times heads per kv head.
constexpr std::int32_t tile_rows(std::int32_t head_dim) { return head_dim == 256 ? 64 : 128; }

struct PlanAttentionSm90Params {
  PagedBatchSm90 batch;
  AttentionPlanSm90 plan;
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  std::int32_t window;        // as in PagedAttentionSm90Params
  std::int32_t max_few_rows;  // at most kMaxFewRows
};

/// Entries that do not fit the plan's limits are left out: size them for the largest step.
using PlanAttentionSm90 = device::CudaLaunch<PlanAttentionSm90Params>;
PlanAttentionSm90 plan_attention_sm90;

struct PagedKvSm90 {
  void* base;                 // bf16, sm90_layout.h; 16-byte aligned
  std::int64_t block_stride;  // elements, a multiple of 8
  std::int32_t num_kv_heads;
  std::int32_t head_dim;    // 64, 128 or 256
  std::int32_t block_size;  // a multiple of 16
};

struct PagedAttentionSm90Params {
  PagedBatchSm90 batch;
  AttentionPlanSm90 plan;
  PagedKvSm90 cache;
  const void* q;  // bf16 [num_tokens, num_heads, head_dim], token stride q_stride, 16-byte aligned rows
  std::int64_t q_stride;
  std::int32_t num_heads;  // a multiple of num_kv_heads, at most 64 per kv head
  float scale;             // > 0
  std::int32_t window;     // > 0: a query at p sees keys in (p - window, p]; 0: all keys up to p
  void* out;               // bf16 [num_tokens, num_heads, head_dim], token stride out_stride
  std::int64_t out_stride;
  float* partials;  // partial_floats(...) floats
  /// The most queries of a row that is cut by keys, and whether there are others: what is launched follows from these.
  std::int32_t max_few_queries;
  bool has_tiles;
};

/// Sums of partitions, their maxima and denominators.
constexpr std::int64_t partial_floats(std::int32_t max_partitions, std::int32_t num_kv_heads, std::int32_t head_dim) {
  return std::int64_t{max_partitions} * num_kv_heads * kMaxFewRows * (head_dim + 2);
}

using PagedAttentionSm90 = device::CudaLaunch<PagedAttentionSm90Params>;
PagedAttentionSm90 paged_attention_sm90;

/// What stands between the projection of queries, keys and values and attention over them: norms of heads (Qwen3, Gemma
/// 3), rotation, and writing keys and values into the cache. fp32 throughout, rounded to bf16 once.
struct PrepareQkvSm90Params {
  PagedBatchSm90 batch;
  const std::int32_t* token_rows;  // of the step's plan
  PagedKvSm90 cache;
  void* qkv;  // bf16 [num_tokens, num_heads + 2 * num_kv_heads, head_dim], token stride; queries are replaced
  std::int64_t qkv_stride;
  std::int32_t num_heads;
  const float* q_norm;  // [head_dim], or null for none
  const float* k_norm;
  float epsilon;
  const float* cos_sin;   // [num_tokens, rope_dim]: cosines, then sines
  std::int32_t rope_dim;  // 0: none; a multiple of head_dim / 16
  bool is_interleaved;    // RopePairing::kInterleaved
};

using PrepareQkvSm90 = device::CudaLaunch<PrepareQkvSm90Params>;
PrepareQkvSm90 prepare_qkv_sm90;

}  // namespace thalweg::kernels::attention
