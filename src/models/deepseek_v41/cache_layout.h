// How V4.1 divides the memory that the worker lends: blocks, shared by content, and the state of one sequence
// (DeepSeek-V4.1 specification, sections 4.4 and 4.5).
//
// A block holds, for each kv source, the compressed entries of its tokens and then their index keys, in the native FP4
// forms: 890 bytes per token with the released sizes. The state holds a ring of window rows per layer and per draft
// stage, and what the compressors need of groups that are still open. Rings are addressed by position and hold
// `max_draft_tokens` rows more than the window, so rows of drafts that fell through are overwritten before anybody
// could see them, and nothing needs to be rolled back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention/sparse_attention.h"
#include "kv_cache/cache_spec.h"
#include "models/deepseek_v41/config.h"
#include "models/model.h"

namespace thalweg::models::deepseek_v41 {

/// At the front of a slot's state. A new sequence finds it zeroed.
struct StateHeader {
  std::int32_t is_begun = 0;
  std::int32_t encoder_begin = 0;  // first position whose window rows the first layers have
  std::int32_t decoder_begin = 0;  // the same for the layers behind the last kv source
  std::int32_t end = 0;            // behind what was computed last, drafts included
};

class CacheLayout {
 public:
  CacheLayout() = default;
  CacheLayout(const Config& config, std::int32_t block_size, std::int32_t max_draft_tokens, bool has_draft_model);

  kv_cache::CacheSpec spec() const;
  std::int32_t ring_capacity() const { return ring_capacity_; }
  /// Positions at a sequence's end that may be computed again.
  std::int32_t max_draft_tokens() const { return max_draft_tokens_; }
  std::int64_t row_bytes() const { return row_bytes_; }
  std::int32_t open_capacity() const { return open_capacity_; }

  /// Compressed entries and index keys of kv source `owner`.
  kernels::PagedEntries entries(const CacheMemory& cache, std::int32_t owner) const;
  kernels::PagedEntries index_keys(const CacheMemory& cache, std::int32_t owner) const;
  /// Where one of them is written: entry `entry` of a sequence with that block table.
  std::byte* entry_place(const CacheMemory& cache, std::int32_t owner, const std::int32_t* block_table,
                         std::int32_t entry) const;
  std::byte* index_key_place(const CacheMemory& cache, std::int32_t owner, const std::int32_t* block_table,
                             std::int32_t entry) const;

  std::byte* state(const CacheMemory& cache, std::int32_t slot) const;
  StateHeader& header(const CacheMemory& cache, std::int32_t slot) const;
  /// [ring_capacity] window rows of a layer; draft stages follow the layers.
  std::byte* ring(const CacheMemory& cache, std::int32_t slot, std::int32_t layer) const;
  /// Inputs of the compressor of kv source `owner`: position p at [p % open_capacity], head_dim values and head_dim
  /// gates. Null for sources of single tokens.
  float* open_group(const CacheMemory& cache, std::int32_t slot, std::int32_t owner) const;

 private:
  struct Source {
    std::int32_t layer = 0;
    std::int32_t ratio = 1;
    std::int64_t entries_offset = 0;  // in a block
    std::int64_t keys_offset = 0;
    std::int64_t open_offset = -1;  // in the state
  };
  const Source& source(std::int32_t layer) const;
  std::byte* place(const CacheMemory& cache, std::int64_t offset, std::int64_t entry_bytes, const Source& from,
                   const std::int32_t* block_table, std::int32_t entry) const;

  std::int32_t head_dim_ = 0;
  std::int32_t window_ = 0;
  std::int32_t block_size_ = 0;
  std::int32_t max_draft_tokens_ = 0;
  std::int32_t ring_capacity_ = 0;
  std::int32_t open_capacity_ = 0;
  std::int64_t row_bytes_ = 0;
  std::int64_t entry_bytes_ = 0;
  std::int64_t key_bytes_ = 0;
  std::int64_t rings_offset_ = 0;
  std::int64_t bytes_per_block_ = 0;
  std::int64_t state_bytes_ = 0;
  std::int32_t max_ratio_ = 1;
  std::vector<Source> sources_;
};

}  // namespace thalweg::models::deepseek_v41
