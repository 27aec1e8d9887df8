#include "speculative/draft_limit.h"

#include <algorithm>

namespace thalweg::speculative {

std::int32_t DraftLimit::next() {
  if (num_paused_ > 0) {
    --num_paused_;
    return 0;
  }
  return limit_;
}

void DraftLimit::observe(std::int32_t num_drafts, std::int32_t num_accepted) {
  if (num_accepted > 0) {
    limit_ = std::min(max_drafts_, num_accepted == num_drafts ? std::max(limit_, num_drafts) * 2 : num_accepted + 1);
    pause_ = kFirstPause;
    return;
  }
  limit_ /= 2;
  if (limit_ > 0) return;
  limit_ = 1;
  num_paused_ = pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
}

}  // namespace thalweg::speculative
