#include "models/deepseek_v4/cache_layout.h"

#include <algorithm>
#include <limits>

#include "models/plain_format.h"

namespace thalweg::models::deepseek_v4 {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Blocks hold whole entries of every layer.
std::int32_t whole_groups(std::int32_t block_size, const Config& config) {
  std::int32_t group = 1;
  for (const Compression compression : config.compression) group = std::max(group, ratio_of(compression));
  return (block_size + group - 1) / group * group;
}

}  // namespace

CacheLayout::CacheLayout(const Config& config, const LoadOptions& options)
    : format_(plain_format(options.kv_dtype)),
      block_size_(whole_groups(options.block_size, config)),
      head_dim_(config.attention.head_dim),
      index_dim_(config.index.head_dim),
      window_capacity_(std::max(1, config.attention.window - 1 + options.max_draft_tokens)) {
  const auto take = [](std::int64_t& end, std::int64_t bytes) {
    const std::int64_t begin = end;
    end += aligned(bytes);
    return begin;
  };
  constexpr std::int64_t kFloat = sizeof(float);
  for (const Compression compression : config.compression) {
    const std::int32_t ratio = ratio_of(compression);
    const bool is_sparse = compression == Compression::kSparse;
    Layer layer{.ratio = ratio};
    layer.window = take(bytes_per_slot_, window_capacity_ * kernels::quant_row_bytes(format_, head_dim_));
    if (ratio > 0) {
      // An overlapping entry reaches back one group; a value and a gate for each purpose of a token.
      layer.open_capacity = (is_sparse ? 2 : 1) * ratio - 1 + options.max_draft_tokens;
      layer.open_width = (is_sparse ? 4 : 2) * head_dim_;
      layer.open_entries = take(bytes_per_slot_, layer.open_capacity * layer.open_width * kFloat);
      layer.entries = take(bytes_per_block_, block_size_ / ratio * kernels::quant_row_bytes(format_, head_dim_));
    }
    if (is_sparse) {
      layer.open_index_width = 4 * index_dim_;
      layer.open_index_keys = take(bytes_per_slot_, layer.open_capacity * layer.open_index_width * kFloat);
      layer.index_keys = take(bytes_per_block_, block_size_ / ratio * kernels::quant_row_bytes(format_, index_dim_));
    }
    layers_.push_back(layer);
  }
  // A layer's rows depend on a window of the layer below, and so on down: after that many tokens everything that a slot
  // holds is what it would be without a hit.
  const std::int64_t reach = std::max(config.attention.window, kSparseRatio);
  const std::int64_t depth = static_cast<std::int64_t>(layers_.size()) * reach;
  replay_tokens_ = static_cast<std::int32_t>(std::min<std::int64_t>(depth, std::numeric_limits<std::int32_t>::max()));
}

kv_cache::CacheSpec CacheLayout::spec() const {
  return {.block_size = block_size_,
          .bytes_per_block = bytes_per_block_,
          .state_bytes_per_slot = bytes_per_slot_,
          .hit_granularity = block_size_,
          .replay_tokens = replay_tokens_};
}

kernels::PagedRows CacheLayout::rows(std::byte* base, std::int32_t ratio, std::int32_t dim) const {
  return {.base = base,
          .block_stride = bytes_per_block_,
          .rows_per_block = block_size_ / std::max(ratio, 1),
          .row_dim = dim,
          .format = format_};
}

kernels::PagedRows CacheLayout::entries(const CacheMemory& cache, std::int32_t index) const {
  return rows(cache.blocks + layer(index).entries, layer(index).ratio, head_dim_);
}

kernels::PagedRows CacheLayout::index_keys(const CacheMemory& cache, std::int32_t index) const {
  return rows(cache.blocks + layer(index).index_keys, layer(index).ratio, index_dim_);
}

Ring CacheLayout::window(const CacheMemory& cache, std::int32_t index, std::int32_t slot) const {
  return {.rows = cache.states + slot * bytes_per_slot_ + layer(index).window,
          .capacity = window_capacity_,
          .row_bytes = kernels::quant_row_bytes(format_, head_dim_)};
}

Ring CacheLayout::open_entries(const CacheMemory& cache, std::int32_t index, std::int32_t slot) const {
  return {.rows = cache.states + slot * bytes_per_slot_ + layer(index).open_entries,
          .capacity = layer(index).open_capacity,
          .row_bytes = layer(index).open_width * static_cast<std::int64_t>(sizeof(float))};
}

Ring CacheLayout::open_index_keys(const CacheMemory& cache, std::int32_t index, std::int32_t slot) const {
  return {.rows = cache.states + slot * bytes_per_slot_ + layer(index).open_index_keys,
          .capacity = layer(index).open_capacity,
          .row_bytes = layer(index).open_index_width * static_cast<std::int64_t>(sizeof(float))};
}

}  // namespace thalweg::models::deepseek_v4
