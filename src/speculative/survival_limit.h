// How many drafts of a draft model a sequence is worth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace thalweg::speculative {

/// Drafts 0..j all hold with a probability of about c_0 * ... * c_j, c_i the draft model's confidences (DeepSeek-V4.1
/// specification, section 7.5). The limit is the number of drafts for which that is at least `min_survival`, by the
/// confidences of the step before, so that a step's shape is known before its drafts are; and at least one, so that
/// verification costs little where drafts fail and is resumed where they hold.
class SurvivalLimit {
 public:
  SurvivalLimit() = default;
  SurvivalLimit(std::int32_t max_drafts, float min_survival)
      : max_drafts_(max_drafts), limit_(max_drafts), min_survival_(min_survival) {}

  std::int32_t next() const { return limit_; }

  /// What is not a number counts as no confidence.
  void observe(std::span<const float> confidences) {
    if (min_survival_ <= 0.0F) return;
    float survival = 1.0F;
    limit_ = 0;
    for (const float confidence :
         confidences.first(std::min(confidences.size(), static_cast<std::size_t>(max_drafts_)))) {
      survival *= confidence;
      if (!(survival >= min_survival_)) break;
      ++limit_;
    }
    limit_ = std::max(limit_, 1);
  }

 private:
  std::int32_t max_drafts_ = 0;
  std::int32_t limit_ = 0;
  float min_survival_ = 0.0F;
};

}  // namespace thalweg::speculative
