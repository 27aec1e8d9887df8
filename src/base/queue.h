// A bounded queue between threads. Mutexes live here; code above uses queues.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace thalweg {

/// Any number of producers and consumers.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  /// False, and `item` untouched, when the queue is full or closed.
  bool try_push(T& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  /// Waits for an item; empty once the queue is closed and drained.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take_front();
  }

  /// Empty when there is nothing now.
  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take_front();
  }

  /// Everything that is there; waits up to `timeout` for a first item.
  std::vector<T> drain(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::zero()) {
    std::unique_lock lock(mutex_);
    if (timeout.count() > 0) ready_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
    std::vector<T> taken(std::make_move_iterator(items_.begin()), std::make_move_iterator(items_.end()));
    items_.clear();
    return taken;
  }

  /// Further pushes fail; waiting consumers wake.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::optional<T> take_front() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace thalweg
