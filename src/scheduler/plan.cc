// Composing a step. One pass over all sequences in their order, each gets some of what it lacks.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace thalweg::scheduler {

struct Scheduler::OpenPlan {
  double now = 0.0;
  StepBudget budget;
  bool preempted = false;  // for want of blocks: then nobody new starts in this step
  step::StepPlan plan;
  // Rows that continue go before those with known tokens, so they are kept apart until the end.
  std::vector<step::SequenceRow> known_rows;
  std::vector<RowInFlight> continued;
  std::vector<RowInFlight> known;
  std::int32_t num_prefill_tokens = 0;

  void send_new_blocks(Sequence& sequence, step::SequenceRow& row) {
    row.first_new_block = static_cast<std::int32_t>(plan.block_ids.size());
    row.num_new_blocks = static_cast<std::int32_t>(sequence.blocks.size() - sequence.num_sent_blocks);
    plan.block_ids.insert(plan.block_ids.end(),
                          sequence.blocks.begin() + static_cast<std::ptrdiff_t>(sequence.num_sent_blocks),
                          sequence.blocks.end());
    sequence.num_sent_blocks = sequence.blocks.size();
  }
};

StepDemand Scheduler::demand() const {
  StepDemand demand;
  demand.wants_prefill = !waiting_.empty() && !free_slots_.empty();
  for (const Sequence* sequence : running_) {
    if (sequence->num_computed_tokens >= sequence->num_target_tokens()) continue;
    if (sequence->continues()) {
      ++demand.num_continuing;
    } else {
      demand.wants_prefill = true;
    }
  }
  return demand;
}

std::optional<step::StepPlan> Scheduler::plan(double now) {
  CHECK_LT(in_flight_.size(), 2U);
  make_room_for_better_priority();
  OpenPlan open;
  open.now = now;
  open.budget = budget_.split(demand());

  bool may_start = true;
  std::size_t next = 0;  // in running_; whoever is preempted sits behind it
  while (true) {
    Sequence* running = next < running_.size() ? running_[next] : nullptr;
    Sequence* waiting = may_start && !open.preempted && !waiting_.empty() ? *waiting_.begin() : nullptr;
    if (running == nullptr && waiting == nullptr) break;
    if (waiting != nullptr && (running == nullptr || RunsBefore()(waiting, running))) {
      // Nobody overtakes the first in the queue, or a large request might wait for ever.
      may_start = try_start(*waiting, open);
      if (may_start) ++next;
    } else {
      plan_running(*running, open);
      ++next;
    }
  }
  if (open.plan.rows.empty() && open.known_rows.empty() && released_slots_.empty()) return std::nullopt;
  hand_over(open);
  return std::move(open.plan);
}

void Scheduler::make_room_for_better_priority() {
  if (waiting_.empty()) return;
  Sequence& candidate = **waiting_.begin();
  if (candidate.num_rows_in_flight > 0) return;
  if (running_.empty() || !may_displace(candidate, *running_.back())) return;
  if (candidate.blocked_at_version == kv_.version()) return;  // nobody has given up blocks since it did not fit

  PrefixHit hit = blocks_.find_hit(candidate);
  if (!would_fit_without_worse(candidate, hit)) return;
  while (!running_.empty() && may_displace(candidate, *running_.back()) &&
         (free_slots_.empty() || !fits(candidate, hit))) {
    preempt(*running_.back());
    hit.num_free_blocks = kv_.count_free(hit.blocks);
  }
}

void Scheduler::plan_running(Sequence& sequence, OpenPlan& open) {
  if (sequence.num_computed_tokens >= sequence.num_target_tokens()) return;
  if (sequence.continues()) {
    plan_continuation(sequence, open);
  } else {
    plan_known_tokens(sequence, open);
  }
}

void Scheduler::plan_continuation(Sequence& sequence, OpenPlan& open) {
  // The executor holds at most this many tokens when the row runs. Drafts stop where max_tokens would
  // end the sequence even if all of them, and all in flight, are accepted.
  const std::int32_t most_tokens = sequence.num_known_tokens() + sequence.max_tokens_in_flight;
  std::int32_t num_drafts =
      std::clamp(sequence.max_num_tokens() - most_tokens - 1, 0, open.budget.max_draft_tokens_per_row);
  if (blocks_.num_missing(sequence, most_tokens + num_drafts) > kv_.num_free()) num_drafts = 0;
  if (!secure_blocks(sequence, most_tokens + num_drafts, open)) return;

  step::SequenceRow row;
  row.slot = sequence.slot;
  row.max_draft_tokens = num_drafts;
  row.samples = true;
  open.send_new_blocks(sequence, row);
  open.plan.rows.push_back(row);
  open.continued.push_back({sequence.request->shared_from_this(), &sequence, 0, 1 + num_drafts});

  sequence.num_computed_tokens += 1;
  sequence.num_rows_in_flight += 1;
  sequence.min_tokens_in_flight += 1;
  sequence.max_tokens_in_flight += 1 + num_drafts;
}

void Scheduler::plan_known_tokens(Sequence& sequence, OpenPlan& open) {
  const std::int32_t num_tokens = std::min(sequence.num_start_tokens - sequence.num_computed_tokens,
                                           open.budget.num_prefill_tokens - open.num_prefill_tokens);
  if (num_tokens <= 0) return;
  const std::int32_t end = sequence.num_computed_tokens + num_tokens;
  if (!secure_blocks(sequence, end, open)) return;

  step::SequenceRow row;
  row.slot = sequence.slot;
  row.first_position = sequence.num_computed_tokens;
  row.num_known_tokens = num_tokens;
  row.samples = end == sequence.num_start_tokens && sequence.request->max_tokens > 0;
  open.send_new_blocks(sequence, row);
  open.known_rows.push_back(row);
  open.known.push_back({sequence.request->shared_from_this(), &sequence, end, row.samples ? 1 : 0});
  open.num_prefill_tokens += num_tokens;

  sequence.num_computed_tokens = end;
  sequence.num_rows_in_flight += 1;
  sequence.min_tokens_in_flight += row.samples ? 1 : 0;
  sequence.max_tokens_in_flight += row.samples ? 1 : 0;
}

/// False if the sequence itself had to yield.
bool Scheduler::secure_blocks(Sequence& sequence, std::int32_t num_tokens, OpenPlan& open) {
  const std::int32_t num_missing = blocks_.num_missing(sequence, num_tokens);
  while (num_missing > kv_.num_free()) {
    Sequence& victim = choose_victim(running_);
    open.preempted = true;
    preempt(victim);
    if (&victim == &sequence) return false;
  }
  blocks_.grow(sequence, num_missing);
  return true;
}

/// False if the first in the queue has to go on waiting, and everybody behind it.
bool Scheduler::try_start(Sequence& sequence, OpenPlan& open) {
  if (sequence.num_rows_in_flight > 0) return false;  // its newest tokens are not known yet
  if (open.num_prefill_tokens >= open.budget.num_prefill_tokens || free_slots_.empty()) return false;
  if (sequence.blocked_at_version == kv_.version()) return false;
  const PrefixHit hit = blocks_.find_hit(sequence);
  if (!fits(sequence, hit)) {
    sequence.blocked_at_version = kv_.version();
    return false;
  }
  start(sequence, hit, open);
  return true;
}

/// Room for all known tokens of `sequence`, beside what has been promised to those who run: blocks for their known
/// tokens that they have not computed yet. While others run, one block for each stays free, or the newcomer would be
/// preempted at once.
bool Scheduler::fits(const Sequence& sequence, const PrefixHit& hit) const {
  std::int64_t num_available = kv_.num_free();
  for (const Sequence* running : running_)
    num_available -= blocks_.num_missing(*running, running->num_start_tokens) + 1;
  return num_needed_blocks(sequence, hit) <= num_available;
}

/// Whether `candidate` would fit if everybody of a worse priority gave way. A block that several hold becomes free when
/// the last of them leaves.
bool Scheduler::would_fit_without_worse(const Sequence& candidate, const PrefixHit& hit) const {
  std::int64_t num_available = kv_.num_free();
  std::unordered_map<kv_cache::BlockId, std::int32_t> num_leaving;  // of a block's holders
  for (const Sequence* running : running_) {
    if (may_displace(candidate, *running)) {
      for (const kv_cache::BlockId block : running->blocks) {
        if (++num_leaving[block] == kv_.num_holders(block)) ++num_available;
      }
    } else {
      num_available -= blocks_.num_missing(*running, running->num_start_tokens) + 1;
    }
  }
  PrefixHit then = hit;
  for (const kv_cache::BlockId block : hit.blocks) {
    const auto leaving = num_leaving.find(block);
    if (leaving != num_leaving.end() && leaving->second == kv_.num_holders(block)) ++then.num_free_blocks;
  }
  return num_needed_blocks(candidate, then) <= num_available;
}

/// Free blocks that its known tokens would take.
std::int64_t Scheduler::num_needed_blocks(const Sequence& sequence, const PrefixHit& hit) const {
  return kv_.blocks_for(sequence.num_known_tokens()) - static_cast<std::int64_t>(hit.blocks.size()) +
         hit.num_free_blocks;
}

void Scheduler::start(Sequence& sequence, const PrefixHit& hit, OpenPlan& open) {
  CHECK_EQ(sequence.num_rows_in_flight, 0);  // or its token ids would not be complete
  Request& request = *sequence.request;
  waiting_.erase(&sequence);
  running_.insert(std::ranges::lower_bound(running_, &sequence, RunsBefore()), &sequence);
  sequence.state = SequenceState::kRunning;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();

  blocks_.adopt(sequence, hit);
  sequence.num_published_blocks = sequence.blocks.size();
  sequence.num_start_tokens = sequence.num_known_tokens();
  sequence.num_computed_tokens = kv_cache::first_token_after_hit(kv_.spec(), hit.num_cached_tokens);
  if (!sequence.started) sequence.prompt_logprobs.clear();  // of an attempt that was preempted

  step::SequenceStart start;
  start.slot = sequence.slot;
  start.token_ids = request.prompt_ids;
  if (!sequence.output_ids.empty()) {
    auto token_ids = std::make_shared<std::vector<std::int32_t>>();
    token_ids->reserve(static_cast<std::size_t>(sequence.num_start_tokens));
    *token_ids = *request.prompt_ids;
    token_ids->insert(token_ids->end(), sequence.output_ids.begin(), sequence.output_ids.end());
    start.token_ids = std::move(token_ids);
  }
  start.num_prompt_tokens = sequence.num_prompt_tokens();
  start.num_cached_tokens = hit.num_cached_tokens;
  start.sampling = request.sampling;
  start.seed = sequence.seed;
  start.num_prompt_logprobs = sequence.wants_prompt_logprobs() && !sequence.started ? request.num_prompt_logprobs : -1;
  open.plan.starts.push_back(std::move(start));

  if (!sequence.scheduled_s) {
    sequence.scheduled_s = open.now;
    if (!request.prompt_submitted) {  // not one that shares what another has computed
      request.num_cached_tokens = hit.from_prefix_cache ? hit.num_cached_tokens : 0;
      totals_.num_prefix_query_tokens += static_cast<std::uint64_t>(sequence.num_prompt_tokens());
      totals_.num_prefix_hit_tokens += static_cast<std::uint64_t>(request.num_cached_tokens);
    }
  }
  request.queue_place = QueuePlace();
  plan_known_tokens(sequence, open);
}

void Scheduler::preempt(Sequence& victim) {
  leave_running(victim);
  victim.state = SequenceState::kWaiting;
  waiting_.insert(&victim);
  ++victim.num_preemptions;
  ++totals_.num_preemptions;
}

/// The plan is complete and will be submitted: what it computes may be shared by later ones.
void Scheduler::hand_over(OpenPlan& open) {
  step::StepPlan& plan = open.plan;
  plan.step_id = ++last_step_id_;
  plan.released_slots = std::exchange(released_slots_, {});
  plan.rows.insert(plan.rows.end(), open.known_rows.begin(), open.known_rows.end());

  for (const RowInFlight& row : open.known) {
    Sequence& sequence = *row.sequence;
    sequence.num_submitted_tokens = row.num_known_tokens_end;
    blocks_.publish(sequence, row.num_known_tokens_end);
    if (row.num_known_tokens_end >= sequence.num_prompt_tokens()) release_held(*row.request);
  }

  StepInFlight& step = in_flight_.emplace_back();
  step.step_id = plan.step_id;
  step.num_prefill_tokens = open.num_prefill_tokens;
  step.rows = std::move(open.continued);
  step.rows.insert(step.rows.end(), std::make_move_iterator(open.known.begin()),
                   std::make_move_iterator(open.known.end()));
}

void Scheduler::release_held(Request& request) {
  if (request.prompt_submitted) return;
  request.prompt_submitted = true;
  for (Sequence& sequence : request.sequences) {
    if (sequence.state != SequenceState::kHeld) continue;
    sequence.state = SequenceState::kWaiting;
    waiting_.insert(&sequence);
  }
}

}  // namespace thalweg::scheduler
