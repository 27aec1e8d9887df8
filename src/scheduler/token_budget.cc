#include "scheduler/token_budget.h"

#include <algorithm>

namespace thalweg::scheduler {
namespace {

// Before the first measurement: small enough for a slow machine, large enough to measure.
constexpr std::int32_t kFirstGuessTokens = 128;
// However slow the machine is, a prompt moves on.
constexpr std::int32_t kMinPrefillTokens = 16;
// Shorter steps tell more about their fixed costs than about a token.
constexpr std::int32_t kMinObservedTokens = 32;
constexpr double kNewestShare = 0.3;

}  // namespace

std::int32_t TokenBudget::tokens_per_target_step() const {
  if (seconds_per_token_ <= 0.0) return kFirstGuessTokens;
  const double tokens = limits_.target_step_s / seconds_per_token_;
  return static_cast<std::int32_t>(std::min<double>(tokens, limits_.max_num_batched_tokens));
}

StepBudget TokenBudget::split(const StepDemand& demand) const {
  StepBudget budget;
  std::int32_t left = limits_.max_num_batched_tokens - demand.num_continuing;
  if (demand.num_continuing > 0) {
    const std::int32_t for_drafts = demand.wants_prefill ? left / 2 : left;
    budget.max_draft_tokens_per_row = std::min(limits_.max_draft_tokens, for_drafts / demand.num_continuing);
    const std::int32_t num_streaming = demand.num_continuing * (1 + budget.max_draft_tokens_per_row);
    left = limits_.max_num_batched_tokens - num_streaming;
    left = std::min(left, std::max(tokens_per_target_step() - num_streaming, kMinPrefillTokens));
  }
  budget.num_prefill_tokens = std::max(left, 0);
  return budget;
}

void TokenBudget::observe(std::int32_t num_prefill_tokens, std::int32_t num_computed_tokens, double execute_s) {
  if (num_prefill_tokens < kMinObservedTokens || 2 * num_prefill_tokens < num_computed_tokens) return;
  const double seconds = execute_s / num_computed_tokens;
  seconds_per_token_ =
      seconds_per_token_ <= 0.0 ? seconds : seconds_per_token_ + kNewestShare * (seconds - seconds_per_token_);
}

}  // namespace thalweg::scheduler
