// Events of an engine, for a thread that waits for them.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/queue.h"
#include "thalweg/event.h"

namespace thalweg::engine {

/// Filled by the engine thread, emptied by one other. Bounded by what the requests in the engine may produce.
class EventQueue final : public EventSink {
 public:
  void deliver(std::vector<Event> events) override { CHECK(queue_.try_push(events)); }

  /// The events of the next step that has some.
  std::vector<Event> wait() { return queue_.pop().value_or(std::vector<Event>()); }

 private:
  BoundedQueue<std::vector<Event>> queue_{std::numeric_limits<std::size_t>::max()};
};

}  // namespace thalweg::engine
