// How many drafts a sequence is worth.
#pragma once

#include <cstdint>

namespace thalweg::speculative {

/// Follows one sequence's acceptance: twice as many after all drafts held, one more than held otherwise, half as many
/// after none did. When not even one holds, it pauses, longer each time. It counts steps and looks at no clock, so a
/// run can be repeated.
class DraftLimit {
 public:
  DraftLimit() = default;
  explicit DraftLimit(std::int32_t max_drafts) : max_drafts_(max_drafts), limit_(max_drafts) {}

  /// The number for this step.
  std::int32_t next();
  /// What became of the step's drafts; steps without drafts are not reported.
  void observe(std::int32_t num_drafts, std::int32_t num_accepted);

 private:
  static constexpr std::int32_t kFirstPause = 4;  // steps
  static constexpr std::int32_t kLongestPause = 64;

  std::int32_t max_drafts_ = 0;
  std::int32_t limit_ = 0;
  std::int32_t pause_ = kFirstPause;  // length of the next one
  std::int32_t num_paused_ = 0;       // steps left of this one
};

}  // namespace thalweg::speculative
