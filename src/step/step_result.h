// Bridge 2, upward: what one step computed.
#pragma once

#include <cstdint>
#include <vector>

#include "thalweg/error.h"
#include "thalweg/event.h"

namespace thalweg::step {

/// The answer to the plan's row of the same index.
struct RowResult {
  std::int32_t first_token = 0;       // in StepResult::token_ids
  std::int32_t num_tokens = 0;        // accepted drafts and the drawn token; 0 if the row drew none
  std::int32_t num_draft_tokens = 0;  // drafts that were verified
  bool failed = false;                // logits held NaN; the sequence must end with kInternal
};

struct StepResult {
  std::uint64_t step_id = 0;
  std::vector<std::int32_t> token_ids;
  std::vector<RowResult> rows;
  /// One per entry of `token_ids` where the sequence asked for logprobs, otherwise the entry is
  /// default constructed; empty when nobody asked.
  std::vector<TokenLogprobs> logprobs;
  /// Per row: logprobs of the prompt tokens that follow the row's known tokens; empty when nobody
  /// asked.
  std::vector<std::vector<TokenLogprobs>> prompt_logprobs;
  std::int32_t num_computed_tokens = 0;  // drafts included
  double execute_s = 0.0;
  /// The device is gone: no further step will run.
  std::vector<Error> fatal;  // zero or one
};

}  // namespace thalweg::step
