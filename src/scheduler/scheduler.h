// Which tokens does the next step compute, and what do its results mean?
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_cache/kv_blocks.h"
#include "scheduler/event_outbox.h"
#include "scheduler/preemption.h"
#include "scheduler/sequence.h"
#include "scheduler/sequence_blocks.h"
#include "scheduler/token_budget.h"
#include "step/step_plan.h"
#include "step/step_result.h"
#include "thalweg/engine.h"

namespace thalweg::scheduler {

struct SchedulerLimits {
  std::int32_t max_num_seqs = 0;  // at most the executor's slots, at most tokens.max_num_batched_tokens
  TokenLimits tokens;
  std::vector<std::int32_t> eos_token_ids;
};

/// Owns all requests between admission and their last event. Engine thread only.
///
/// Two steps may be in flight: `plan` for step t+1 is called before `apply` of step t. It then relies
/// only on what is certain about step t: how many tokens each row will have sampled at least (for
/// whether there is anything left to do) and at most (for blocks). A row of t+1 whose sequence turns
/// out to have ended at t is computed in vain and its result dropped.
///
/// Every sequence of every added request gets exactly one FinishEvent in the outbox.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, kv_cache::KvBlocks& kv, const kv_cache::BlockHasher& hasher,
            EventOutbox& outbox);

  void add(std::shared_ptr<Request> request);

  /// Unknown ids and ended sequences are ignored.
  void cancel(RequestId id, double now);
  void cancel_sequence(RequestId id, std::int32_t index, double now);
  /// Ends what is past its deadline, waiting or running.
  void end_expired(double now);
  void end_all(FinishReason reason, const std::optional<Error>& error, double now);

  /// The next step, if there is anything to do before the results of those in flight are known.
  /// Precondition: fewer than StepExecutor::kMaxInFlight plans are unanswered.
  std::optional<step::StepPlan> plan(double now);

  /// The answer to the oldest unanswered plan. After a fatal one everything has ended and no plan
  /// may be asked for.
  void apply(step::StepResult result, double now);

  bool has_sequences() const { return !requests_.empty(); }
  /// Also true while the executor has to be told about slots that became free.
  bool has_work() const { return has_sequences() || !released_slots_.empty(); }
  std::int32_t num_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t num_waiting() const { return num_unfinished_ - num_running(); }

  /// All fields but those of admission and time.
  void fill(EngineStats& stats) const;

  /// Counts, owners and references agree. Aborts otherwise. O(everything); for tests.
  void check_invariants() const;

 private:
  struct RowInFlight {
    std::shared_ptr<Request> request;
    Sequence* sequence = nullptr;
    std::int32_t num_known_tokens_end = 0;  // 0 if it continues
    std::int32_t max_new_tokens = 0;        // 0 if it does not sample
  };
  struct StepInFlight {
    std::uint64_t step_id = 0;
    std::int32_t num_prefill_tokens = 0;
    std::vector<RowInFlight> rows;
  };
  struct OpenPlan;  // plan.cc

  // plan.cc
  StepDemand demand() const;
  void make_room_for_better_priority();
  void plan_running(Sequence& sequence, OpenPlan& open);
  void plan_continuation(Sequence& sequence, OpenPlan& open);
  void plan_known_tokens(Sequence& sequence, OpenPlan& open);
  bool secure_blocks(Sequence& sequence, std::int32_t num_tokens, OpenPlan& open);
  bool try_start(Sequence& sequence, OpenPlan& open);
  bool fits(const Sequence& sequence, const PrefixHit& hit) const;
  bool would_fit_without_worse(const Sequence& candidate, const PrefixHit& hit) const;
  std::int64_t num_needed_blocks(const Sequence& sequence, const PrefixHit& hit) const;
  void start(Sequence& sequence, const PrefixHit& hit, OpenPlan& open);
  void preempt(Sequence& victim);
  void hand_over(OpenPlan& open);
  void release_held(Request& request);

  // apply.cc
  void apply_row(const RowInFlight& row, const step::RowResult& row_result, std::size_t row_index,
                 step::StepResult& result, double now);
  void start_output(Sequence& sequence, double now);
  void take_tokens(Sequence& sequence, const step::RowResult& row_result, step::StepResult& result, double now);
  void count_drafts(Sequence& sequence, const step::RowResult& row_result);

  // scheduler.cc
  void finish(Sequence& sequence, FinishReason reason, std::optional<std::int32_t> stop_token_id,
              const std::optional<Error>& error, double now);
  void leave_running(Sequence& sequence);
  void promote_held(Request& request);
  void count_end(FinishReason reason);
  Sequence* find_unfinished(RequestId id, std::int32_t index);

  const SchedulerLimits limits_;
  kv_cache::KvBlocks& kv_;
  SequenceBlocks blocks_;
  EventOutbox& outbox_;
  TokenBudget budget_;

  std::unordered_map<RequestId, std::shared_ptr<Request>> requests_;  // with unfinished sequences
  std::set<std::pair<double, RequestId>> deadlines_;
  std::set<Sequence*, RunsBefore> waiting_;
  std::vector<Sequence*> running_;  // in order of RunsBefore
  std::int32_t num_unfinished_ = 0;

  std::vector<step::SlotId> free_slots_;
  std::vector<step::SlotId> released_slots_;  // free, but the executor has not been told yet
  std::deque<StepInFlight> in_flight_;
  std::uint64_t last_step_id_ = 0;
  EngineStats totals_;
};

}  // namespace thalweg::scheduler
