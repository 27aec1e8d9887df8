// What a worker will take, computed before anything is taken.
#pragma once

#include <cstdint>
#include <string>

#include "models/model.h"
#include "speculative/draft_model_proposer.h"
#include "thalweg/error.h"
#include "worker/worker_options.h"

namespace thalweg::worker {

/// Address space is taken at start, memory as it is first used: an idle engine holds no cache.
struct MemoryPlan {
  std::int32_t max_model_len = 0;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_logit_rows = 0;         // logits of one forward
  std::int32_t prompt_logprob_tokens = 0;  // of a row that wants prompt logprobs, in one forward
  std::int64_t num_blocks = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t state_bytes = 0;
  std::int64_t logit_bytes = 0;
  std::int64_t draft_logit_bytes = 0;  // of a draft model
};

/// Fills in what the options leave open. The cache is what all sequences at full length could use, at most half of
/// `available_bytes` and what logits and sequence state leave of it, unless kv_cache_bytes says otherwise; a model
/// length that was not asked for is shortened to what one sequence can hold. Fails when logits, state and cache
/// together are more than is available, naming each and what is missing, and when one sequence would not fit.
Result<MemoryPlan> plan_memory(const models::ModelInfo& model, const WorkerOptions& options,
                               std::int64_t available_bytes);

/// How a draft model is used under these options.
speculative::DraftModelOptions draft_model_options(const models::ModelInfo& model, const WorkerOptions& options,
                                                   std::int32_t max_num_seqs);

/// One line for people.
std::string describe(const MemoryPlan& plan, const kv_cache::CacheSpec& cache);

/// Memory this process may still take: what the kernel calls available, within the control group's limit.
std::int64_t available_memory_bytes();

}  // namespace thalweg::worker
