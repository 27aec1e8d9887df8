// What a model's forward pass sees of a step: flat arrays over the tokens of all rows. The worker
// owns the memory; it stays unchanged until the step has run.
#pragma once

#include <cstdint>
#include <span>

namespace thalweg::step {

struct BatchView {
  std::span<const std::int32_t> token_ids;     // [num_tokens]
  std::span<const std::int32_t> positions;     // [num_tokens]
  std::span<const std::int32_t> cu_seqlens;    // [num_rows + 1], first token of each row
  std::span<const std::int32_t> context_lens;  // [num_rows], tokens in the cache after this step
  std::span<const std::int32_t> block_tables;  // [num_rows, max_blocks_per_row]
  std::int32_t max_blocks_per_row = 0;
  std::span<const std::int32_t> slots;         // [num_rows], for per-sequence state
  std::span<const std::int32_t> logit_tokens;  // [num_logits], tokens whose logits are wanted, rising

  // For models with state per sequence (kv_cache::CacheSpec).
  std::span<const std::span<const std::int32_t>> histories;  // [num_rows], ids of all tokens before the row's first
  /// [num_rows]: blocks hold what belongs to positions before this already, and others may read them: a row that begins
  /// earlier replays tokens for its state alone and writes nothing there.
  std::span<const std::int32_t> cached_lens;
  /// [num_rows]: of positions before this only what later ones need is wanted, so that a model may leave out layers
  /// whose memory ends before (ModelInfo::prefill_tail_tokens).
  std::span<const std::int32_t> full_from;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids.size()); }
  std::int32_t num_rows() const { return static_cast<std::int32_t>(context_lens.size()); }
  std::int32_t num_logits() const { return static_cast<std::int32_t>(logit_tokens.size()); }
};

}  // namespace thalweg::step
