// Time that passes only when somebody says so.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace thalweg::simulator {

/// One thread.
class VirtualClock final : public Clock {
 public:
  double now() const override { return now_s_; }
  void advance_to(double time_s) { now_s_ = std::max(now_s_, time_s); }

 private:
  double now_s_ = 0.0;
};

}  // namespace thalweg::simulator
