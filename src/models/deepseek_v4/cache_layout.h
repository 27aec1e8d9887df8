// How DeepSeek-V4 divides the memory that the worker lends.
//
// A cache block holds, layer after layer, the compressed entries of its tokens and, of sparse layers, the entries'
// index keys. What belongs to one sequence lies in its slot, layer after layer: the rows of the window, and of
// compressed layers what the newest tokens contribute to entries that are not complete or overlap later ones. Both are
// rings by position, deep enough that a step may begin as many tokens earlier as drafts were rejected.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/latent_attention.h"
#include "kv_cache/cache_spec.h"
#include "models/deepseek_v4/config.h"
#include "models/load_options.h"
#include "models/model.h"

namespace thalweg::models::deepseek_v4 {

/// The newest rows of one sequence, position p at slot p % capacity.
struct Ring {
  std::byte* rows = nullptr;
  std::int32_t capacity = 0;
  std::int64_t row_bytes = 0;

  std::byte* row(std::int32_t position) const { return rows + position % capacity * row_bytes; }
};

class CacheLayout {
 public:
  CacheLayout(const Config& config, const LoadOptions& options);

  kv_cache::CacheSpec spec() const;
  kernels::QuantFormat format() const { return format_; }

  kernels::PagedRows entries(const CacheMemory& cache, std::int32_t layer) const;
  kernels::PagedRows index_keys(const CacheMemory& cache, std::int32_t layer) const;
  Ring window(const CacheMemory& cache, std::int32_t layer, std::int32_t slot) const;
  /// Values and gates in fp32, CompressorWeights::width of each.
  Ring open_entries(const CacheMemory& cache, std::int32_t layer, std::int32_t slot) const;
  Ring open_index_keys(const CacheMemory& cache, std::int32_t layer, std::int32_t slot) const;

 private:
  struct Layer {
    std::int32_t ratio = 0;    // 0: no entries
    std::int64_t entries = 0;  // offsets into a block
    std::int64_t index_keys = 0;
    std::int64_t window = 0;  // offsets into a slot
    std::int64_t open_entries = 0;
    std::int64_t open_index_keys = 0;
    std::int32_t open_capacity = 0;  // tokens
    std::int32_t open_width = 0;     // floats of a token in open_entries
    std::int32_t open_index_width = 0;
  };

  const Layer& layer(std::int32_t index) const { return layers_[static_cast<std::size_t>(index)]; }
  kernels::PagedRows rows(std::byte* base, std::int32_t ratio, std::int32_t dim) const;

  std::vector<Layer> layers_;
  kernels::QuantFormat format_;
  std::int32_t block_size_ = 0;
  std::int32_t head_dim_ = 0;
  std::int32_t index_dim_ = 0;
  std::int32_t window_capacity_ = 0;
  std::int32_t replay_tokens_ = 0;
  std::int64_t bytes_per_block_ = 0;
  std::int64_t bytes_per_slot_ = 0;
};

}  // namespace thalweg::models::deepseek_v4
