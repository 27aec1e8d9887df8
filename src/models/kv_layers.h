// How a decoder divides the cache that the worker lends: a block holds the keys and values of `block_size` tokens for
// layer 0, then layer 1, and so on.
#pragma once

#include <cstdint>

#include "kernels/attention/paged_attention.h"
#include "kv_cache/cache_spec.h"
#include "models/model.h"
#include "step/batch_view.h"

namespace thalweg::models {

struct KvLayers {
  kernels::KvLayout layout;
  std::int32_t num_layers = 0;

  std::int64_t bytes_per_block() const { return num_layers * layout.bytes_per_block(); }
  kv_cache::CacheSpec spec() const { return {.block_size = layout.block_size, .bytes_per_block = bytes_per_block()}; }
  kernels::PagedKv layer(const CacheMemory& cache, std::int32_t index) const {
    return {cache.blocks + index * layout.bytes_per_block(), bytes_per_block(), layout};
  }
};

inline kernels::PagedBatch paged_batch(const step::BatchView& batch) {
  return {batch.positions, batch.cu_seqlens, batch.context_lens, batch.block_tables, batch.max_blocks_per_row};
}

}  // namespace thalweg::models
