// Events of one step, grouped by who wants them.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "thalweg/event.h"

namespace thalweg::scheduler {

/// Engine thread.
class EventOutbox {
 public:
  void add(const std::shared_ptr<EventSink>& sink, Event event);

  /// One `deliver` call per sink, in the order in which the sinks were first heard of.
  void deliver();

  bool empty() const { return batches_.empty(); }

 private:
  struct Batch {
    std::shared_ptr<EventSink> sink;
    std::vector<Event> events;
  };

  std::vector<Batch> batches_;
  std::unordered_map<const EventSink*, std::size_t> batch_of_;
};

}  // namespace thalweg::scheduler
