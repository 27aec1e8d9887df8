// Events of an engine, for a thread that waits for them.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/queue.h"
#include "thalweg/event.h"

namespace thalweg::apps {

/// Filled by the engine thread, emptied by one other.
class EventQueue final : public EventSink {
 public:
  void deliver(std::vector<Event> events) override { CHECK(queue_.try_push(events)); }

  /// The events of the next step that has some.
  std::vector<Event> wait() { return queue_.pop().value_or(std::vector<Event>()); }

 private:
  static constexpr std::size_t kMaxSteps = std::size_t{1} << 20;
  BoundedQueue<std::vector<Event>> queue_{kMaxSteps};
};

}  // namespace thalweg::apps
