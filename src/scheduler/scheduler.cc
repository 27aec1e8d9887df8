// Arrival, end, and the accounts in between.
#include "scheduler/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/check.h"

namespace thalweg::scheduler {

Scheduler::Scheduler(const SchedulerLimits& limits, kv_cache::KvBlocks& kv, const kv_cache::BlockHasher& hasher,
                     EventOutbox& outbox)
    : limits_(limits), kv_(kv), blocks_(kv, hasher), outbox_(outbox), budget_(limits.tokens) {
  CHECK_GT(limits.max_num_seqs, 0);
  CHECK_GE(limits.tokens.max_num_batched_tokens, limits.max_num_seqs);
  for (step::SlotId slot = limits.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::add(std::shared_ptr<Request> request) {
  const auto num_sequences = static_cast<std::int32_t>(request->sequences.size());
  ++totals_.num_requests_admitted;
  totals_.num_sequences_admitted += static_cast<std::uint64_t>(num_sequences);
  num_unfinished_ += num_sequences;
  if (const std::optional<double> deadline = request->deadline_s()) deadlines_.emplace(*deadline, request->id);
  Sequence& first = request->sequences.front();
  first.state = SequenceState::kWaiting;
  waiting_.insert(&first);
  const RequestId id = request->id;
  CHECK(requests_.emplace(id, std::move(request)).second);
}

Sequence* Scheduler::find_unfinished(RequestId id, std::int32_t index) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return nullptr;
  std::vector<Sequence>& sequences = found->second->sequences;
  if (index < 0 || index >= static_cast<std::int32_t>(sequences.size())) return nullptr;
  Sequence& sequence = sequences[static_cast<std::size_t>(index)];
  return sequence.state == SequenceState::kFinished ? nullptr : &sequence;
}

void Scheduler::cancel(RequestId id, double now) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const auto num_sequences = static_cast<std::int32_t>(found->second->sequences.size());
  // From the back, so that no held sequence is put into the queue only to be taken out again.
  for (std::int32_t index = num_sequences - 1; index >= 0; --index) cancel_sequence(id, index, now);
}

void Scheduler::cancel_sequence(RequestId id, std::int32_t index, double now) {
  if (Sequence* sequence = find_unfinished(id, index)) finish(*sequence, FinishReason::kCancelled, {}, {}, now);
}

void Scheduler::end_expired(double now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto request = requests_.at(deadlines_.begin()->second);  // keeps it alive
    for (auto sequence = request->sequences.rbegin(); sequence != request->sequences.rend(); ++sequence) {
      if (sequence->state == SequenceState::kFinished) continue;
      const Error error{ErrorCode::kDeadlineExceeded,
                        fmt::format("the request's time of {} s is over after {} of at most {} tokens",
                                    *request->timeout_s, sequence->output_ids.size(), request->max_tokens),
                        "timeout"};
      finish(*sequence, FinishReason::kError, {}, error, now);
    }
  }
}

void Scheduler::end_all(FinishReason reason, const std::optional<Error>& error, double now) {
  while (!requests_.empty()) {
    const auto request = requests_.begin()->second;  // keeps it alive
    for (auto sequence = request->sequences.rbegin(); sequence != request->sequences.rend(); ++sequence) {
      if (sequence->state != SequenceState::kFinished) finish(*sequence, reason, {}, error, now);
    }
  }
}

void Scheduler::leave_running(Sequence& sequence) {
  blocks_.release(sequence);
  free_slots_.push_back(sequence.slot);
  released_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.num_start_tokens = 0;
  sequence.num_computed_tokens = 0;
  sequence.num_submitted_tokens = 0;
  const auto place = std::ranges::lower_bound(running_, &sequence, RunsBefore());
  CHECK(place != running_.end() && *place == &sequence);
  running_.erase(place);
}

void Scheduler::promote_held(Request& request) {
  const auto held = std::ranges::find(request.sequences, SequenceState::kHeld, &Sequence::state);
  if (held == request.sequences.end()) return;
  held->state = SequenceState::kWaiting;
  waiting_.insert(&*held);
}

void Scheduler::count_end(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      ++totals_.num_sequences_finished;
      break;
    case FinishReason::kCancelled:
      ++totals_.num_sequences_cancelled;
      break;
    case FinishReason::kError:
      ++totals_.num_sequences_failed;
      break;
  }
}

void Scheduler::finish(Sequence& sequence, FinishReason reason, std::optional<std::int32_t> stop_token_id,
                       const std::optional<Error>& error, double now) {
  Request& request = *sequence.request;
  const SequenceState before = sequence.state;
  CHECK(before != SequenceState::kFinished);
  if (before == SequenceState::kRunning) leave_running(sequence);
  if (before == SequenceState::kWaiting) waiting_.erase(&sequence);
  sequence.state = SequenceState::kFinished;
  // Somebody must compute the prompt for those who wait for it.
  if (before != SequenceState::kHeld && !request.prompt_submitted) promote_held(request);

  FinishEvent event;
  event.request_id = request.id;
  event.sequence_index = sequence.index;
  event.reason = reason;
  event.stop_token_id = stop_token_id;
  event.num_prompt_tokens = sequence.num_prompt_tokens();
  event.num_cached_tokens = request.num_cached_tokens;
  event.num_output_tokens = static_cast<std::int32_t>(sequence.output_ids.size());
  event.num_preemptions = sequence.num_preemptions;
  event.num_draft_tokens = sequence.num_draft_tokens;
  event.num_accepted_tokens = sequence.num_accepted_tokens;
  const double scheduled_s = sequence.scheduled_s.value_or(now);
  const double prompt_done_s = sequence.prompt_done_s.value_or(now);
  event.timings = {scheduled_s - request.submitted_s, prompt_done_s - scheduled_s, now - prompt_done_s};
  event.error = error;
  outbox_.add(request.sink, std::move(event));

  count_end(reason);
  --num_unfinished_;
  if (--request.num_unfinished == 0) {
    if (const std::optional<double> deadline = request.deadline_s()) deadlines_.erase({*deadline, request.id});
    request.queue_place = QueuePlace();
    requests_.erase(request.id);  // may destroy `request`
  }
}

void Scheduler::fill(EngineStats& stats) const {
  const double last_progress_s = stats.last_progress_s;
  const std::uint64_t num_rejected = stats.num_requests_rejected;
  stats = totals_;
  stats.last_progress_s = last_progress_s;
  stats.num_requests_rejected = num_rejected;
  stats.num_running = num_running();
  stats.num_waiting = num_waiting();
  stats.num_held = num_waiting() - static_cast<std::int32_t>(waiting_.size());
  stats.num_blocks_total = kv_.num_blocks();
  stats.num_blocks_used = kv_.num_used();
}

}  // namespace thalweg::scheduler
