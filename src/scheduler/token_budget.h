// How many tokens now?
#pragma once

#include <cstdint>

namespace thalweg::scheduler {

struct TokenLimits {
  std::int32_t max_num_batched_tokens = 0;  // at least the number of sequences in a step
  std::int32_t max_draft_tokens = 0;        // per row
  double target_step_s = 0.0;               // while streams run
};

struct StepDemand {
  std::int32_t num_continuing = 0;  // sequences that want their next token
  bool wants_prefill = false;       // somebody has known tokens to compute
};

struct StepBudget {
  std::int32_t max_draft_tokens_per_row = 0;
  std::int32_t num_prefill_tokens = 0;
};

/// Running streams are served first; drafts take at most half of what is left while prompts wait.
/// Prompts get the rest, but while streams run only as much as keeps the step near its target time:
/// that time is the gap between two tokens of every stream. Engine thread.
class TokenBudget {
 public:
  explicit TokenBudget(const TokenLimits& limits) : limits_(limits) {}

  StepBudget split(const StepDemand& demand) const;

  /// Learns the price of a token from steps that were mostly prefill.
  void observe(std::int32_t num_prefill_tokens, std::int32_t num_computed_tokens, double execute_s);

 private:
  std::int32_t tokens_per_target_step() const;

  const TokenLimits limits_;
  double seconds_per_token_ = 0.0;  // 0: nothing measured yet
};

}  // namespace thalweg::scheduler
