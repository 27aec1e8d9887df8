// Time enters through this interface so that a simulator can supply it.
#pragma once

namespace thalweg {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds, monotonic, from an arbitrary origin.
  virtual double now() const = 0;
};

/// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  double now() const override;
};

}  // namespace thalweg
