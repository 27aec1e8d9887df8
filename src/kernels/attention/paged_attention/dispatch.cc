#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/attention/paged_attention/reference.h"
#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels {
namespace {

using attention::SequenceBlocks;

std::int32_t num_rows(const PagedBatch& batch) { return static_cast<std::int32_t>(batch.context_lens.size()); }

SequenceBlocks blocks_of(const PagedKv& cache, const PagedBatch& batch, std::int32_t row) {
  return {.base = cache.base,
          .block_stride = cache.block_stride,
          .block_table = batch.block_tables.data() + static_cast<std::int64_t>(row) * batch.max_blocks_per_row,
          .num_kv_heads = cache.layout.num_kv_heads,
          .head_dim = cache.layout.head_dim,
          .block_size = cache.layout.block_size,
          .dtype = cache.layout.dtype};
}

std::int32_t row_of_token(const PagedBatch& batch, std::int32_t token) {
  const auto end = std::ranges::upper_bound(batch.cu_seqlens, token);
  return static_cast<std::int32_t>(end - batch.cu_seqlens.begin()) - 1;
}

void check_shape(const PagedKv& cache, const PagedBatch& batch) {
  const KvLayout& layout = cache.layout;
  CHECK_GT(layout.num_kv_heads, 0);
  CHECK_GT(layout.block_size, 0);
  CHECK_EQ(layout.head_dim % 8, 0);
  CHECK_GE(cache.block_stride, layout.bytes_per_block());
  CHECK_EQ(batch.cu_seqlens.size(), batch.context_lens.size() + 1);
  CHECK_EQ(static_cast<std::size_t>(batch.cu_seqlens.back()), batch.positions.size());
  CHECK_GE(batch.block_tables.size(), batch.context_lens.size() * batch.max_blocks_per_row);
}

}  // namespace

std::int64_t KvLayout::bytes_per_block() const {
  const std::int64_t num_elements = std::int64_t{2} * num_kv_heads * head_dim * block_size;
  const std::int64_t num_bytes = device::row_bytes(dtype, num_elements);
  return (num_bytes + 63) / 64 * 64;
}

void write_kv(device::Stream& stream, const PagedKv& cache, const PagedBatch& batch, const float* k,
              std::int64_t k_stride, const float* v, std::int64_t v_stride) {
  if (batch.positions.empty()) return;
  check_shape(cache, batch);
  const auto write_row = [&](std::int64_t row, int) {
    const std::int32_t first = batch.cu_seqlens[row];
    attention::write_kv_reference({.blocks = blocks_of(cache, batch, static_cast<std::int32_t>(row)),
                                   .k = k + first * k_stride,
                                   .k_stride = k_stride,
                                   .v = v + first * v_stride,
                                   .v_stride = v_stride,
                                   .positions = batch.positions.data() + first,
                                   .num_tokens = batch.cu_seqlens[row + 1] - first});
  };
  stream.threads->parallel_for(num_rows(batch), write_row);
}

void paged_attention(device::Stream& stream, const PagedAttentionParams& params) {
  if (params.batch.positions.empty()) return;
  check_shape(params.cache, params.batch);
  CHECK_EQ(params.num_heads % params.cache.layout.num_kv_heads, 0);
  const auto attend_token = [&](std::int64_t task, int) {
    const auto token = static_cast<std::int32_t>(task);
    attention::attend_reference(params, blocks_of(params.cache, params.batch, row_of_token(params.batch, token)),
                                token);
  };
  stream.threads->parallel_for(static_cast<std::int64_t>(params.batch.positions.size()), attend_token);
}

}  // namespace thalweg::kernels
