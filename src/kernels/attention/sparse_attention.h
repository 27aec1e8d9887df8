// Attention over a short window and a chosen list: each query sees the newest rows of its own sequence and the
// compressed entries that an index chose for it, all in one softmax with a sink (DeepSeek-V4.1 specification,
// section 3.8). Keys and values are the same rows, shared by all heads.
//
// Numeric contract. Scores, softmax and sums in fp32, in an order fixed by the query's position and list: window rows
// by rising position, then entries in list order. One query's result depends on nothing else in the batch. Versions
// differ by fp32 rounding only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/stream.h"
#include "kernels/quant/quant.h"

namespace thalweg::kernels {

/// Entries of a cache that is divided into blocks: entry e of a sequence lies in block table[e / entries_per_block] at
/// base + block * block_stride + (e % entries_per_block) * entry_bytes.
struct PagedEntries {
  const std::byte* base = nullptr;
  std::int64_t block_stride = 0;
  std::int32_t entries_per_block = 0;
  std::int64_t entry_bytes = 0;
  QuantFormat format = QuantFormat::kF4Block16;
};

/// The last rows of one sequence: position p lies at slot p % capacity.
struct WindowRing {
  const std::byte* rows = nullptr;  // [capacity] rows of quant_row_bytes(kF8Block32, head_dim)
  std::int32_t begin = 0;           // positions before are not there
};

struct SparseAttentionParams {
  const float* q = nullptr;  // [num_tokens, num_heads, head_dim]
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  float scale = 1.0F;
  const float* sinks = nullptr;  // [num_heads], logits that take part in the denominator only

  std::span<const std::int32_t> positions;   // [num_tokens], rising by one within a row
  std::span<const std::int32_t> cu_seqlens;  // [num_rows + 1]

  // The window: a query at p sees positions (p - window, p] of its row from ring.begin on. Those of this step are in
  // `step_rows`, older ones in the ring.
  std::int32_t window = 0;
  std::span<const WindowRing> rings;  // [num_rows]
  std::int32_t ring_capacity = 0;
  const std::byte* step_rows = nullptr;  // [num step rows] rows of quant_row_bytes(kF8Block32, head_dim)
  /// [num_rows + 1]: step rows of each row, when there are more of them than queries: the last one belongs to the row's
  /// last query, and queries are the newest tokens of theirs. Empty: cu_seqlens.
  std::span<const std::int32_t> step_cu_seqlens;
  /// Every query of a row sees all step rows of that row, later ones too (a block of drafts), besides the window of the
  /// row's first position.
  bool sees_whole_step = false;

  // The list; without entries only the window counts.
  PagedEntries entries;
  std::span<const std::int32_t> block_tables;  // [num_rows, max_blocks_per_row]
  std::int32_t max_blocks_per_row = 0;
  const std::int32_t* lists = nullptr;  // [num_tokens, max_list], -1: nothing; or null
  std::int32_t max_list = 0;

  bool rounds_bf16 = false;  // the probabilities before the product with values, and the result
  float* out = nullptr;      // [num_tokens, num_heads, head_dim]
};

void sparse_attention(device::Stream& stream, const SparseAttentionParams& params);

}  // namespace thalweg::kernels
