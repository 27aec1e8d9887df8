#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>

#include "sampling/scan.h"
#include "sampling/select.h"

namespace thalweg::sampling {

RowLogprobs::RowLogprobs(const RowLoops& loops, std::span<const float> row, const RowScratch& scratch)
    : loops_(loops), row_(row) {
  const float max = *std::max_element(scratch.maxima.begin(), scratch.maxima.end());
  log_sum_ = max + std::log(loops.exp_sum(row.data(), static_cast<std::int32_t>(row.size()), max));
}

float RowLogprobs::logprob(float logit) const { return std::max(static_cast<float>(logit - log_sum_), kLowestLogprob); }

TokenLogprob RowLogprobs::token(std::int32_t id) const {
  const float logit = row_[static_cast<std::size_t>(id)];
  const std::int32_t before = loops_.count_before(row_.data(), static_cast<std::int32_t>(row_.size()), logit, id);
  return {id, logprob(logit), before + 1};
}

void RowLogprobs::top(std::int32_t k, RowScratch& scratch, std::vector<TokenLogprob>& out) const {
  select_top(row_, scratch.maxima, k, scratch.order, scratch.candidates);
  out.clear();
  out.reserve(scratch.candidates.size());
  for (const Candidate& candidate : scratch.candidates) {
    out.push_back({candidate.id, logprob(candidate.logit), static_cast<std::int32_t>(out.size()) + 1});
  }
}

bool score_token(const RowLoops& loops, std::span<const float> row, std::int32_t token_id, std::int32_t num_top,
                 RowScratch& scratch, TokenLogprobs& out) {
  if (!scan_row(loops, row, scratch)) return false;
  const RowLogprobs logprobs(loops, row, scratch);
  out.chosen = logprobs.token(token_id);
  logprobs.top(num_top, scratch, out.top);
  return true;
}

}  // namespace thalweg::sampling
