// How the family divides a cache block: for layer 0 the latent rows of `block_size` tokens, then their index keys where
// there is an index, then layer 1, and so on.
#pragma once

#include <cstdint>

#include "kernels/attention/latent_attention.h"
#include "kv_cache/cache_spec.h"
#include "models/deepseek_v3/config.h"
#include "models/model.h"

namespace thalweg::models::deepseek_v3 {

struct CacheLayout {
  std::int32_t num_layers = 0;
  std::int32_t block_size = 0;
  std::int32_t row_dim = 0;
  std::int32_t index_dim = 0;  // 0: no index
  kernels::QuantFormat format = kernels::QuantFormat::kF16;

  kv_cache::CacheSpec spec() const { return {.block_size = block_size, .bytes_per_block = bytes_per_block()}; }
  kernels::PagedRows latents(const CacheMemory& cache, std::int32_t layer) const {
    return rows(cache.blocks + layer * bytes_per_layer(), row_dim);
  }
  kernels::PagedRows index_keys(const CacheMemory& cache, std::int32_t layer) const {
    return rows(cache.blocks + layer * bytes_per_layer() + segment_bytes(row_dim), index_dim);
  }

 private:
  std::int64_t segment_bytes(std::int32_t dim) const {
    constexpr std::int64_t kAlignment = 64;
    return (block_size * kernels::quant_row_bytes(format, dim) + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::int64_t bytes_per_layer() const { return segment_bytes(row_dim) + segment_bytes(index_dim); }
  std::int64_t bytes_per_block() const { return num_layers * bytes_per_layer(); }
  kernels::PagedRows rows(std::byte* base, std::int32_t dim) const {
    return {.base = base,
            .block_stride = bytes_per_block(),
            .rows_per_block = block_size,
            .row_dim = dim,
            .format = format};
  }
};

}  // namespace thalweg::models::deepseek_v3
