// The index of sparse attention: scores compressed entries for each query and lists the best (DeepSeek-V4.1
// specification, sections 3.6 and 3.7).
//
// Numeric contract. score(e) = sum over heads, in order, of weight[h] * max(0, <q[h], key[e]>), in fp32; a dot
// product's order is fixed by head_dim. Ties go to the lower entry. A score that is NaN counts as minus infinity, so a
// list never holds an entry that is not visible. One query's list depends on nothing else in the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/stream.h"
#include "kernels/attention/sparse_attention.h"

namespace thalweg::kernels {

/// Blocks of neighbouring entries that later indexes may choose from (two-level selection).
struct IndexCandidates {
  std::int32_t block_size = 0;  // entries
  std::int32_t max_blocks = 0;
  /// [num_tokens, max_blocks] block numbers, rising, -1: nothing.
  std::int32_t* blocks = nullptr;
};

enum class CandidateUse : std::uint8_t {
  kNone,      // every visible entry may be chosen
  kChoose,    // the same, and the best blocks are written down; the newest visible block is always among them
  kRestrict,  // only entries of the blocks written down may be chosen
};

struct IndexParams {
  const float* q = nullptr;        // [num_tokens, num_heads, head_dim], values of their FP4 form
  const float* weights = nullptr;  // [num_tokens, num_heads], scaled
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;

  PagedEntries keys;                           // rows of head_dim values
  std::span<const std::int32_t> cu_seqlens;    // [num_rows + 1]
  std::span<const std::int32_t> block_tables;  // [num_rows, max_blocks_per_row]
  std::int32_t max_blocks_per_row = 0;
  std::span<const std::int32_t> num_visible;  // [num_tokens]: a query may choose entries [0, num_visible)

  CandidateUse use = CandidateUse::kNone;
  IndexCandidates candidates;
  bool rounds_bf16 = false;  // dot products, weighted products and the sum, as the released reference does

  std::int32_t top_k = 0;
  std::int32_t* lists = nullptr;  // [num_tokens, top_k] entries, rising; -1 fills the rest
  /// For whoever wants to look: [num_tokens, scores_stride], minus infinity where not visible; or null.
  float* scores = nullptr;
  std::int64_t scores_stride = 0;
};

/// While num_visible <= top_k (and nothing else asks for scores) all visible entries are listed without scoring.
void index_select(device::Stream& stream, const IndexParams& params);

}  // namespace thalweg::kernels
