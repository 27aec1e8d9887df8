// Log-probabilities of the raw logits, before any of a request's wishes have changed them.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/row_loops.h"
#include "sampling/row_scratch.h"
#include "thalweg/event.h"

namespace thalweg::sampling {

/// What a logit of minus infinity and everything below it is reported as; JSON has no infinity.
inline constexpr float kLowestLogprob = -9999.0F;

/// One row's normalisation. Ties rank by the lower id, so ranks are unique and `top` is in their order.
class RowLogprobs {
 public:
  /// `scratch.maxima` holds the row's block maxima. Same precondition as filter_row.
  RowLogprobs(const RowLoops& loops, std::span<const float> row, const RowScratch& scratch);

  TokenLogprob token(std::int32_t id) const;
  void top(std::int32_t k, RowScratch& scratch, std::vector<TokenLogprob>& out) const;

 private:
  float logprob(float logit) const;

  const RowLoops& loops_;
  std::span<const float> row_;
  double log_sum_ = 0.0;
};

/// The logprobs of `token_id` as the next token, for prompt logprobs. False if the row holds NaN.
bool score_token(const RowLoops& loops, std::span<const float> row, std::int32_t token_id, std::int32_t num_top,
                 RowScratch& scratch, TokenLogprobs& out);

}  // namespace thalweg::sampling
