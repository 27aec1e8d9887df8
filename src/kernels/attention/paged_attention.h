// Attention over the paged KV cache: prefill chunks, decode and draft verification in one shape.
//
// Numeric contract. Scores, softmax and sums in fp32; keys and values are rounded to the cache's dtype when they
// are written and nowhere else. The order of sums for a query at position p depends on p, the window and the layout
// alone: the result is bit-identical for any batch composition, any chunking of the prompt and any thread count.
// Versions differ by fp32 rounding only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/stream.h"

namespace thalweg::kernels {

/// Shape of one layer's share of a block. How keys and values are arranged inside is the kernels' own
/// business; copies and swaps move whole blocks.
struct KvLayout {
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;                  // a multiple of 8
  std::int32_t block_size = 16;               // tokens
  device::DType dtype = device::DType::kF16;  // kF16, kBF16 or kF32

  /// Keys and values of one block, a multiple of 64.
  std::int64_t bytes_per_block() const;
};

/// One layer of the cache: block b begins at base + b * block_stride.
struct PagedKv {
  std::byte* base = nullptr;
  std::int64_t block_stride = 0;
  KvLayout layout;
};

/// Which token belongs where; the same arrays for all layers of a step (step::BatchView).
struct PagedBatch {
  std::span<const std::int32_t> positions;     // [num_tokens]
  std::span<const std::int32_t> cu_seqlens;    // [num_rows + 1]
  std::span<const std::int32_t> context_lens;  // [num_rows], this step's tokens included
  std::span<const std::int32_t> block_tables;  // [num_rows, max_blocks_per_row]
  std::int32_t max_blocks_per_row = 0;
};

/// Writes this step's keys and values at their positions. k, v: [num_tokens, num_kv_heads, head_dim] with the given
/// token strides in elements.
void write_kv(device::Stream& stream, const PagedKv& cache, const PagedBatch& batch, const float* k,
              std::int64_t k_stride, const float* v, std::int64_t v_stride);

struct PagedAttentionParams {
  const float* q = nullptr;  // [num_tokens, num_heads, head_dim], token stride q_stride
  std::int64_t q_stride = 0;
  std::int32_t num_heads = 0;  // a multiple of num_kv_heads; head h reads kv head h / (num_heads / num_kv_heads)
  PagedKv cache;
  PagedBatch batch;
  float scale = 1.0F;
  std::int32_t window = 0;  // > 0: a query at p sees keys in (p - window, p]; 0: all keys up to p
  float* out = nullptr;     // [num_tokens, num_heads, head_dim], token stride out_stride
  std::int64_t out_stride = 0;
};

/// Keys and values of the batch must have been written. Empty batches do nothing.
void paged_attention(device::Stream& stream, const PagedAttentionParams& params);

}  // namespace thalweg::kernels
