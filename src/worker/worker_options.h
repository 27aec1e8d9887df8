// Limits and choices of one worker, fixed at start.
#pragma once

#include <cstdint>
#include <vector>

#include "thalweg/speculation.h"

namespace thalweg::worker {

/// Zero means "choose for this machine and model"; plan_memory says what was chosen.
struct WorkerOptions {
  std::int32_t max_model_len = 0;           // tokens of prompt and output together
  std::int32_t max_num_seqs = 0;            // slots
  std::int32_t max_num_batched_tokens = 0;  // tokens of one step
  std::int64_t kv_cache_bytes = 0;
  std::int32_t num_draft_tokens = 0;  // most drafts per row and step; 0: no speculation
  SpeculationOptions speculation;     // how, with num_draft_tokens > 0
  std::vector<std::int32_t> eos_token_ids;
};

}  // namespace thalweg::worker
