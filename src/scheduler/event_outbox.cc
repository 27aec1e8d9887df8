#include "scheduler/event_outbox.h"

#include <utility>

namespace thalweg::scheduler {

void EventOutbox::add(const std::shared_ptr<EventSink>& sink, Event event) {
  const auto [found, is_new] = batch_of_.try_emplace(sink.get(), batches_.size());
  if (is_new) batches_.push_back({sink, {}});
  batches_[found->second].events.push_back(std::move(event));
}

void EventOutbox::deliver() {
  for (Batch& batch : batches_) batch.sink->deliver(std::move(batch.events));
  batches_.clear();
  batch_of_.clear();
}

}  // namespace thalweg::scheduler
