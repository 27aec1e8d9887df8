// Bridge 2: the engine's whole knowledge of whatever computes.
#pragma once

#include <cstdint>

#include "kv_cache/cache_spec.h"
#include "step/step_plan.h"
#include "step/step_result.h"

namespace thalweg::step {

struct ExecutorLimits {
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  std::int32_t max_slots = 0;
  std::int32_t max_num_batched_tokens = 0;  // known tokens, continued tokens and drafts together
  std::int32_t max_draft_tokens = 0;        // per row; 0: no proposer
  std::int64_t num_blocks = 0;
  kv_cache::CacheSpec cache;
};

/// Runs plans in order. Two may be in flight: `submit` copies nothing to the caller and returns at
/// once; `collect` waits for the oldest. Called from one thread, the engine's.
class StepExecutor {
 public:
  static constexpr int kMaxInFlight = 2;

  virtual ~StepExecutor() = default;

  virtual const ExecutorLimits& limits() const = 0;

  /// Precondition: fewer than kMaxInFlight plans are in flight, at least one row or release.
  virtual void submit(StepPlan plan) = 0;

  /// Precondition: at least one plan is in flight.
  virtual StepResult collect() = 0;
};

}  // namespace thalweg::step
