// The newest value of a plain struct, written by one thread and read by any.
#pragma once

#include <mutex>
#include <utility>

namespace thalweg {

/// Readers copy, so they hold the lock for as long as one copy takes.
template <typename T>
class Snapshot {
 public:
  void publish(T value) {
    std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }

  T read() const {
    std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

}  // namespace thalweg
