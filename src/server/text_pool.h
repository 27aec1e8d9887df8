// Threads for the parts of a request that take long: parsing big bodies, templates, tokenising.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/queue.h"

namespace thalweg::server {

/// All functions may be called from any thread. The destructor finishes what runs and drops what waits.
class TextPool {
 public:
  using Work = std::move_only_function<void()>;

  TextPool(std::int32_t num_threads, std::int32_t max_waiting);
  ~TextPool();
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  /// False when too much waits already.
  bool try_run(Work work) { return waiting_.try_push(work); }

 private:
  BoundedQueue<Work> waiting_;
  std::vector<std::jthread> threads_;
};

}  // namespace thalweg::server
