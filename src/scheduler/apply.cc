// What a step's results mean for its sequences.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/stop_condition.h"

namespace thalweg::scheduler {

void Scheduler::apply(step::StepResult result, double now) {
  CHECK(!in_flight_.empty());
  if (!result.fatal.empty()) {
    end_all(FinishReason::kError, result.fatal.front(), now);
    in_flight_.clear();
    return;
  }
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  CHECK_EQ(result.step_id, step.step_id);
  CHECK_EQ(result.rows.size(), step.rows.size());
  if (!step.rows.empty()) {
    ++totals_.num_steps;
    totals_.last_step_tokens = result.num_computed_tokens;
    totals_.num_computed_tokens += static_cast<std::uint64_t>(result.num_computed_tokens);
    const auto bucket = std::ranges::lower_bound(kStepTokenBounds, result.num_computed_tokens);
    ++totals_.num_steps_by_tokens[static_cast<std::size_t>(bucket - kStepTokenBounds.begin())];
    budget_.observe(step.num_prefill_tokens, result.num_computed_tokens, result.execute_s);
  }
  for (std::size_t i = 0; i < step.rows.size(); ++i) apply_row(step.rows[i], result.rows[i], i, result, now);
}

void Scheduler::apply_row(const RowInFlight& row, const step::RowResult& row_result, std::size_t row_index,
                          step::StepResult& result, double now) {
  Sequence& sequence = *row.sequence;
  sequence.num_rows_in_flight -= 1;
  sequence.min_tokens_in_flight -= row.max_new_tokens > 0 ? 1 : 0;
  sequence.max_tokens_in_flight -= row.max_new_tokens;
  if (sequence.state == SequenceState::kFinished) return;  // it ended while this row was in flight
  if (row_result.failed) {
    blocks_.forget(sequence);
    const Error error{ErrorCode::kInternal, "the model's logits for this sequence are not numbers", {}};
    finish(sequence, FinishReason::kError, {}, error, now);
    return;
  }

  if (!sequence.started && sequence.wants_prompt_logprobs() && row_index < result.prompt_logprobs.size()) {
    std::vector<TokenLogprobs>& more = result.prompt_logprobs[row_index];
    sequence.prompt_logprobs.insert(sequence.prompt_logprobs.end(), std::make_move_iterator(more.begin()),
                                    std::make_move_iterator(more.end()));
  }
  if (!sequence.started && row.num_known_tokens_end >= sequence.num_prompt_tokens()) start_output(sequence, now);
  if (row.max_new_tokens > 0) {
    CHECK_GE(row_result.num_tokens, 1);
    CHECK_LE(row_result.num_tokens, row.max_new_tokens);
    take_tokens(sequence, row_result, result, now);
  } else if (sequence.started && sequence.request->max_tokens == 0) {
    finish(sequence, FinishReason::kLength, {}, {}, now);
  }
}

void Scheduler::start_output(Sequence& sequence, double now) {
  Request& request = *sequence.request;
  sequence.started = true;
  sequence.prompt_done_s = now;
  if (!request.prompt_counted) {
    request.prompt_counted = true;
    totals_.num_prompt_tokens += static_cast<std::uint64_t>(sequence.num_prompt_tokens());
  }
  outbox_.add(request.sink, StartEvent{request.id, sequence.index, request.num_cached_tokens,
                                       std::exchange(sequence.prompt_logprobs, {})});
}

void Scheduler::take_tokens(Sequence& sequence, const step::RowResult& row_result, step::StepResult& result,
                            double now) {
  Request& request = *sequence.request;
  count_drafts(sequence, row_result);

  TokenEvent event{request.id, sequence.index, {}, {}};
  std::optional<Stop> stop;
  for (std::int32_t i = 0; i < row_result.num_tokens && !stop; ++i) {
    const auto token = static_cast<std::size_t>(row_result.first_token + i);
    CHECK_LT(token, result.token_ids.size());
    event.token_ids.push_back(result.token_ids[token]);
    if (request.sampling->num_logprobs >= 0) {
      CHECK_LT(token, result.logprobs.size());
      event.logprobs.push_back(std::move(result.logprobs[token]));
    }
    sequence.output_ids.push_back(result.token_ids[token]);
    stop = find_stop(sequence, limits_.eos_token_ids);  // what was accepted after it is dropped
  }
  totals_.num_output_tokens += event.token_ids.size();
  outbox_.add(request.sink, std::move(event));

  if (sequence.state == SequenceState::kRunning) {
    sequence.num_computed_tokens += row_result.num_tokens - 1;   // the plan counted one of them
    blocks_.publish(sequence, sequence.num_known_tokens() - 1);  // the newest is not computed
  }
  if (stop) finish(sequence, stop->reason, stop->stop_token_id, {}, now);
}

void Scheduler::count_drafts(Sequence& sequence, const step::RowResult& row_result) {
  if (row_result.num_draft_tokens == 0) return;
  sequence.num_draft_tokens += row_result.num_draft_tokens;
  sequence.num_accepted_tokens += row_result.num_tokens - 1;
  ++totals_.num_drafts;
  totals_.num_draft_tokens += static_cast<std::uint64_t>(row_result.num_draft_tokens);
  totals_.num_accepted_tokens += static_cast<std::uint64_t>(row_result.num_tokens - 1);
  for (std::int32_t i = 0; i + 1 < row_result.num_tokens; ++i) ++totals_.num_accepted_at[static_cast<std::size_t>(i)];
}

}  // namespace thalweg::scheduler
