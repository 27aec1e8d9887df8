// Attention over latent rows: all heads read the same rows, a key is a whole row and its value the
// row's first channels. That is DeepSeek-V3's multi-head latent attention with the projections of keys and values
// absorbed into queries and results (DeepSeek-AI 2024), and DeepSeek-V4's attention over its window and its compressed
// entries. A query sees rows of the paged cache, the newest rows of its sequence, or both in one softmax.
//
// Numeric contract. Scores, softmax and sums in fp32; rows are rounded to their format when they are stored and
// nowhere else. The order of sums is fixed by the query's position and list: window rows by rising position, then
// cached rows by rising number. One query's result depends on nothing else in the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/stream.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/attention/sparse_attention.h"
#include "kernels/quant/quant.h"

namespace thalweg::kernels {

/// Rows of one layer in the paged cache: row r of a sequence lies in block table[r / rows_per_block], at
/// base + block * block_stride + (r % rows_per_block) * row_bytes().
struct PagedRows {
  std::byte* base = nullptr;
  std::int64_t block_stride = 0;
  std::int32_t rows_per_block = 0;
  std::int32_t row_dim = 0;
  QuantFormat format = QuantFormat::kF16;

  std::int64_t row_bytes() const { return quant_row_bytes(format, row_dim); }
  /// `block_table`: one sequence's.
  std::byte* row(std::span<const std::int32_t> block_table, std::int64_t index) const {
    const std::int64_t block = block_table[static_cast<std::size_t>(index / rows_per_block)];
    return base + block * block_stride + index % rows_per_block * row_bytes();
  }
  /// As other kernels call them.
  PagedEntries entries() const { return {base, block_stride, rows_per_block, row_bytes(), format}; }
};

/// Stores the batch's rows, x [num_tokens, row_dim], at their positions.
void write_rows(device::Stream& stream, const PagedRows& cache, const PagedBatch& batch, const float* x);

struct LatentAttentionParams {
  const float* q = nullptr;  // [num_tokens, num_heads, row_dim]
  std::int32_t num_heads = 0;
  std::int32_t value_dim = 0;  // at most row_dim
  float scale = 1.0F;
  const float* sinks = nullptr;  // [num_heads], logits that take part in the denominator only; or null

  PagedBatch batch;

  /// The cache. A query sees the rows of its list, or without lists all rows below its `num_visible`.
  PagedRows cache;
  std::span<const std::int32_t> num_visible;  // [num_tokens]; empty: no cached rows
  const std::int32_t* lists = nullptr;        // [num_tokens, max_list], rising; -1: nothing; or null
  std::int32_t max_list = 0;

  /// The window: a query at p sees positions (p - window, p]; those of the batch lie in `step_rows`, older ones at slot
  /// p % ring_capacity of their sequence's ring. A sequence's positions rise by one. 0: no window.
  std::int32_t window = 0;
  const std::byte* step_rows = nullptr;     // [num_tokens] rows of the cache's format
  std::span<const std::byte* const> rings;  // [num_sequences]
  std::int32_t ring_capacity = 0;           // at least window - 1

  float* out = nullptr;  // [num_tokens, num_heads, value_dim]
};

/// The rows that queries see must have been stored.
void latent_attention(device::Stream& stream, const LatentAttentionParams& params);

}  // namespace thalweg::kernels
