// Bridge 2, downward: what the engine wants one step to compute.
//
// Slots. A running sequence holds one slot of the executor, [0, max_slots). The executor keeps per
// slot what a step needs and the host need not resend: the token ids so far, the block table, the
// sampler's counters, the model's per-sequence state. The executor is the authority on how many
// tokens a slot holds, because with drafts the host learns it one step late.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "thalweg/request.h"

namespace thalweg::step {

using SlotId = std::int32_t;
using BlockId = std::int32_t;

/// Puts a sequence into a free slot: new, or resumed after preemption. Comes in the same plan as
/// the sequence's first row.
struct SequenceStart {
  SlotId slot = 0;
  /// Prompt and, after a preemption, the tokens generated so far.
  std::shared_ptr<const std::vector<std::int32_t>> token_ids;
  std::int32_t num_prompt_tokens = 0;
  /// The slot's first blocks hold this many tokens' content from a prefix hit. The first row may begin earlier, as far
  /// as the model wants tokens replayed (kv_cache::CacheSpec); then it computes their state and leaves the blocks
  /// alone.
  std::int32_t num_cached_tokens = 0;
  std::shared_ptr<const SamplingParams> sampling;
  std::uint64_t seed = 0;                 // of this sequence; the draw counter is the output length
  std::int32_t num_prompt_logprobs = -1;  // -1: none
};

/// One sequence's share of the step.
///
/// Known tokens (`num_known_tokens` > 0): compute the slot's tokens at positions
/// [first_position, first_position + num_known_tokens), all of which the slot already holds.
/// Continue (`num_known_tokens` == 0): compute the slot's last token and up to `max_draft_tokens`
/// drafts that the executor's proposer appends. A row with `samples` draws the token that follows.
/// Positions below SequenceStart::num_cached_tokens are prefix hits in its blocks.
struct SequenceRow {
  SlotId slot = 0;
  std::int32_t first_position = 0;    // of known tokens
  std::int32_t num_known_tokens = 0;  // 0: continue
  std::int32_t max_draft_tokens = 0;
  std::int32_t first_new_block = 0;  // in StepPlan::block_ids; appended to the slot's block table
  std::int32_t num_new_blocks = 0;
  bool samples = false;
};

/// Applied in the order of the members. Rows that continue come before rows with known tokens.
struct StepPlan {
  std::uint64_t step_id = 0;  // 1, 2, 3, ...
  std::vector<SlotId> released_slots;
  std::vector<SequenceStart> starts;
  std::vector<BlockId> block_ids;
  std::vector<SequenceRow> rows;
};

}  // namespace thalweg::step
