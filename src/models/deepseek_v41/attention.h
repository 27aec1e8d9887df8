// CSA2 attention: a window of raw rows, and entries compressed once by an owner and shared by the layers above it
// (DeepSeek-V4.1 specification, section 3).
//
// A layer works in two halves. The first writes what later tokens will read: window rows, and at kv sources compressed
// entries and index keys. The second reads. Between them a pass may drop tokens whose own results nobody wants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/deepseek_v41/config.h"
#include "models/deepseek_v41/pass.h"
#include "models/deepseek_v41/weights.h"

namespace thalweg::models::deepseek_v41 {

/// Where the window rows of one layer or draft stage lie for each row of a pass.
struct Windows {
  std::vector<kernels::WindowRing> rings;
  std::vector<std::int32_t> step_cu_seqlens;  // [num_rows + 1], of the window rows of this step
};

/// Window rows of x, [num_rows, hidden_size] at `rotary`'s positions, in their stored form.
void make_window_rows(Pass& pass, const AttentionWeights& weights, std::int64_t num_rows, const float* x,
                      const float* rotary, std::byte* rows);

/// Puts the newest rows of the step into each sequence's ring of `layer` (draft stages follow the layers). `rows` are
/// those of the tokens in `cu_seqlens`, the last of which stands at the row's last position.
void store_window_rows(Pass& pass, std::int32_t layer, std::span<const std::int32_t> cu_seqlens, const std::byte* rows);

/// First half: reads work.x of all tokens of the pass.
void write_attention(Pass& pass, const AttentionWeights& weights, const LayerRole& role, std::int32_t layer,
                     Windows& windows);

/// Second half: work.x -> work.out of the tokens that are left.
void read_attention(Pass& pass, const AttentionWeights& weights, const LayerRole& role, std::int32_t layer,
                    const Windows& windows);

/// Attention of a draft stage: everybody in a row's block sees the whole block and the window before it.
void draft_attention(Pass& pass, const AttentionWeights& weights, std::span<const kernels::WindowRing> rings);

}  // namespace thalweg::models::deepseek_v41
