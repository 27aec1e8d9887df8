#include "models/deepseek_v41/cache_layout.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/quant/quant.h"

namespace thalweg::models::deepseek_v41 {
namespace {

using kernels::QuantFormat;

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

CacheLayout::CacheLayout(const Config& config, std::int32_t block_size, std::int32_t max_draft_tokens,
                         bool has_draft_model)
    : head_dim_(config.head_dim),
      window_(config.window),
      block_size_(block_size),
      max_draft_tokens_(max_draft_tokens),
      ring_capacity_(config.window + max_draft_tokens + 1),
      row_bytes_(kernels::quant_row_bytes(QuantFormat::kF8Block32, config.head_dim)),
      entry_bytes_(kernels::quant_row_bytes(QuantFormat::kF4Block16, config.head_dim)),
      key_bytes_(kernels::quant_row_bytes(QuantFormat::kF4Block32, config.index.head_dim)) {
  rings_offset_ = aligned(sizeof(StateHeader));
  const std::int32_t num_rings = config.num_layers + (has_draft_model ? config.dspark.num_stages : 0);
  state_bytes_ = aligned(rings_offset_ + num_rings * ring_capacity_ * row_bytes_);

  for (const std::int32_t layer : config.index.kv_sources) {
    Source source{.layer = layer, .ratio = config.index.compress_ratios[static_cast<std::size_t>(layer)]};
    max_ratio_ = std::max(max_ratio_, source.ratio);
    const std::int32_t num_entries = block_size / source.ratio;
    source.entries_offset = bytes_per_block_;
    source.keys_offset = source.entries_offset + num_entries * entry_bytes_;
    bytes_per_block_ = source.keys_offset + num_entries * key_bytes_;
    sources_.push_back(source);
  }
  open_capacity_ = static_cast<std::int32_t>(
      std::bit_ceil(static_cast<std::uint32_t>(std::max(8, max_draft_tokens + 1 + max_ratio_))));
  for (Source& source : sources_) {
    if (source.ratio == 1) continue;
    source.open_offset = state_bytes_;
    state_bytes_ =
        aligned(state_bytes_ + std::int64_t{open_capacity_} * 2 * head_dim_ * static_cast<std::int64_t>(sizeof(float)));
  }
}

kv_cache::CacheSpec CacheLayout::spec() const {
  return {.block_size = block_size_,
          .bytes_per_block = bytes_per_block_,
          .state_bytes_per_slot = state_bytes_,
          .hit_granularity = max_ratio_,
          .replay_tokens = window_};
}

const CacheLayout::Source& CacheLayout::source(std::int32_t layer) const {
  const auto found = std::ranges::find(sources_, layer, &Source::layer);
  CHECK(found != sources_.end());
  return *found;
}

kernels::PagedEntries CacheLayout::entries(const CacheMemory& cache, std::int32_t owner) const {
  const Source& from = source(owner);
  return {.base = cache.blocks + from.entries_offset,
          .block_stride = bytes_per_block_,
          .entries_per_block = block_size_ / from.ratio,
          .entry_bytes = entry_bytes_,
          .format = QuantFormat::kF4Block16};
}

kernels::PagedEntries CacheLayout::index_keys(const CacheMemory& cache, std::int32_t owner) const {
  const Source& from = source(owner);
  return {.base = cache.blocks + from.keys_offset,
          .block_stride = bytes_per_block_,
          .entries_per_block = block_size_ / from.ratio,
          .entry_bytes = key_bytes_,
          .format = QuantFormat::kF4Block32};
}

std::byte* CacheLayout::place(const CacheMemory& cache, std::int64_t offset, std::int64_t entry_bytes,
                              const Source& from, const std::int32_t* block_table, std::int32_t entry) const {
  const std::int32_t entries_per_block = block_size_ / from.ratio;
  const std::int64_t block = block_table[entry / entries_per_block];
  return cache.blocks + block * bytes_per_block_ + offset + entry % entries_per_block * entry_bytes;
}

std::byte* CacheLayout::entry_place(const CacheMemory& cache, std::int32_t owner, const std::int32_t* block_table,
                                    std::int32_t entry) const {
  const Source& from = source(owner);
  return place(cache, from.entries_offset, entry_bytes_, from, block_table, entry);
}

std::byte* CacheLayout::index_key_place(const CacheMemory& cache, std::int32_t owner, const std::int32_t* block_table,
                                        std::int32_t entry) const {
  const Source& from = source(owner);
  return place(cache, from.keys_offset, key_bytes_, from, block_table, entry);
}

std::byte* CacheLayout::state(const CacheMemory& cache, std::int32_t slot) const {
  return cache.states + slot * state_bytes_;
}

StateHeader& CacheLayout::header(const CacheMemory& cache, std::int32_t slot) const {
  return *reinterpret_cast<StateHeader*>(state(cache, slot));
}

std::byte* CacheLayout::ring(const CacheMemory& cache, std::int32_t slot, std::int32_t layer) const {
  return state(cache, slot) + rings_offset_ + std::int64_t{layer} * ring_capacity_ * row_bytes_;
}

float* CacheLayout::open_group(const CacheMemory& cache, std::int32_t slot, std::int32_t owner) const {
  const Source& from = source(owner);
  if (from.open_offset < 0) return nullptr;
  return reinterpret_cast<float*>(state(cache, slot) + from.open_offset);
}

}  // namespace thalweg::models::deepseek_v41
