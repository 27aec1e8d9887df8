#include "simulator/fake_executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::simulator {
namespace {

constexpr std::uint64_t kRejectedDraft = 0xDEADDEADDEADDEADU;

TokenLogprobs logprobs_of(std::int32_t token_id, std::int32_t num_top) {
  TokenLogprobs logprobs{{token_id, -1.0F, 1}, {}};
  for (std::int32_t rank = 1; rank <= num_top; ++rank) {
    logprobs.top.push_back({token_id + rank - 1, -static_cast<float>(rank), rank});
  }
  return logprobs;
}

}  // namespace

FakeExecutor::FakeExecutor(const FakeExecutorOptions& options, const Clock& clock,
                           std::function<void(double)> wait_until)
    : options_(options), clock_(clock), wait_until_(std::move(wait_until)), random_(options.random_seed) {
  step::ExecutorLimits& limits = options_.limits;
  limits.vocab_size = options_.model.vocab_size;
  slots_.resize(static_cast<std::size_t>(limits.max_slots));
  cache_.resize(static_cast<std::size_t>(limits.num_blocks * limits.cache.block_size));
  num_holders_.resize(static_cast<std::size_t>(limits.num_blocks));
}

void FakeExecutor::Slot::append(std::int32_t token_id) {
  histories.push_back(FakeModel::extend(histories.empty() ? FakeModel::kEmptyHistory : histories.back(), token_id));
  token_ids.push_back(token_id);
}

FakeExecutor::CacheEntry& FakeExecutor::entry_at(const Slot& slot, std::int32_t position) {
  const std::int32_t block_size = options_.limits.cache.block_size;
  const auto index = static_cast<std::size_t>(position / block_size);
  CHECK_LT(index, slot.blocks.size());
  return cache_[static_cast<std::size_t>(slot.blocks[index]) * static_cast<std::size_t>(block_size) +
                static_cast<std::size_t>(position % block_size)];
}

void FakeExecutor::submit(step::StepPlan plan) {
  CHECK_LT(pending_.size(), static_cast<std::size_t>(kMaxInFlight));
  CHECK_EQ(plan.step_id, last_step_id_ + 1);
  CHECK(!plan.rows.empty() || !plan.released_slots.empty());
  last_step_id_ = plan.step_id;

  step::StepResult result;
  result.step_id = plan.step_id;
  if (options_.fatal_step_id != 0 && plan.step_id >= options_.fatal_step_id) {
    result.fatal.push_back({ErrorCode::kUnavailable, "the simulated device is gone", {}});
    pending_.push_back({clock_.now(), std::move(result)});
    return;
  }
  apply_starts(plan);
  read_rows(plan);
  result.rows.resize(plan.rows.size());
  std::int64_t num_context_tokens = 0;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    run_row(plan.rows[i], i, result);
    num_context_tokens += slot_of(plan.rows[i]).num_computed_tokens;
  }
  CHECK_LE(result.num_computed_tokens, options_.limits.max_num_batched_tokens);

  const StepCost& cost = options_.cost;
  if (!plan.rows.empty()) {
    result.execute_s = cost.base_s + cost.per_token_s * result.num_computed_tokens +
                       cost.per_context_token_s * static_cast<double>(num_context_tokens);
  }
  busy_until_s_ = std::max(busy_until_s_, clock_.now()) + result.execute_s;
  pending_.push_back({busy_until_s_, std::move(result)});
}

step::StepResult FakeExecutor::collect() {
  CHECK(!pending_.empty());
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  wait_until_(pending.done_s);
  return std::move(pending.result);
}

void FakeExecutor::apply_starts(const step::StepPlan& plan) {
  for (step::SlotId id : plan.released_slots) {
    Slot& slot = slots_.at(static_cast<std::size_t>(id));
    CHECK(slot.held);
    for (step::BlockId block : slot.blocks) --num_holders_[static_cast<std::size_t>(block)];
    slot = Slot();
  }
  for (const step::SequenceStart& start : plan.starts) {
    Slot& slot = slots_.at(static_cast<std::size_t>(start.slot));
    CHECK(!slot.held);
    CHECK(!start.token_ids->empty());
    CHECK_LE(start.num_prompt_tokens, static_cast<std::int32_t>(start.token_ids->size()));
    check_hit(start);
    slot.held = true;
    for (std::int32_t token_id : *start.token_ids) slot.append(token_id);
    slot.num_prompt_tokens = start.num_prompt_tokens;
    slot.sampling = start.sampling;
    slot.seed = start.seed;
    slot.num_prompt_logprobs = start.num_prompt_logprobs;
    slot.num_cached_tokens = start.num_cached_tokens;
    slot.num_computed_tokens = std::max(start.num_cached_tokens - options_.limits.cache.replay_tokens, 0);
    CHECK(std::ranges::find(plan.rows, start.slot, &step::SequenceRow::slot) != plan.rows.end());
  }
}

void FakeExecutor::check_hit(const step::SequenceStart& start) const {
  CHECK(start.num_cached_tokens >= 0 && start.num_cached_tokens < static_cast<std::int32_t>(start.token_ids->size()));
  CHECK_EQ(start.num_cached_tokens % options_.limits.cache.block_size, 0);
  CHECK_EQ(start.num_cached_tokens % options_.limits.cache.hit_granularity, 0);
  CHECK(start.num_prompt_logprobs < 0 || start.num_cached_tokens == 0);  // it owes those of the hit as well
}

/// Everything the rows rely on, before any of them writes.
void FakeExecutor::read_rows(const step::StepPlan& plan) {
  CHECK(std::ranges::is_partitioned(plan.rows, [](const auto& row) { return row.num_known_tokens == 0; }));
  std::int32_t num_tokens = 0;
  for (const step::SequenceRow& row : plan.rows) {
    check_row(plan, row);
    num_tokens += row.num_known_tokens > 0 ? row.num_known_tokens : 1 + row.max_draft_tokens;
    if (!options_.verify_cache) continue;
    const Slot& slot = slot_of(row);
    const std::int32_t num_held_tokens = std::max(slot.num_cached_tokens, slot.num_computed_tokens);
    for (std::int32_t position = 0; position < num_held_tokens; ++position) {
      CHECK_EQ(entry_at(slot, position).history, slot.histories[static_cast<std::size_t>(position)]);
    }
  }
  CHECK_LE(num_tokens, options_.limits.max_num_batched_tokens);
}

void FakeExecutor::check_row(const step::StepPlan& plan, const step::SequenceRow& row) {
  Slot& slot = slots_.at(static_cast<std::size_t>(row.slot));
  CHECK(slot.held);
  CHECK_LT(slot.last_row_step_id, plan.step_id);  // one row per slot
  slot.last_row_step_id = plan.step_id;
  for (std::int32_t i = 0; i < row.num_new_blocks; ++i) {
    const step::BlockId block = plan.block_ids.at(static_cast<std::size_t>(row.first_new_block + i));
    CHECK(block >= 0 && block < options_.limits.num_blocks);
    slot.blocks.push_back(block);
    ++num_holders_[static_cast<std::size_t>(block)];
  }
  const auto num_tokens = static_cast<std::int32_t>(slot.token_ids.size());
  if (row.num_known_tokens > 0) {
    CHECK_EQ(row.first_position, slot.num_computed_tokens);
    CHECK_LE(row.first_position + row.num_known_tokens, num_tokens);
    CHECK(!row.samples || row.first_position + row.num_known_tokens == num_tokens);
    CHECK_EQ(row.max_draft_tokens, 0);
  } else {
    CHECK(slot.failed || slot.num_computed_tokens == num_tokens - 1);
    CHECK(row.samples);
    CHECK_LE(num_tokens + row.max_draft_tokens, options_.limits.max_model_len);
    CHECK_LE(row.max_draft_tokens, options_.limits.max_draft_tokens);
  }
}

void FakeExecutor::run_row(const step::SequenceRow& row, std::size_t row_index, step::StepResult& result) {
  result.rows[row_index].first_token = static_cast<std::int32_t>(result.token_ids.size());
  if (slot_of(row).failed) {
    result.rows[row_index].failed = true;
  } else if (row.num_known_tokens > 0) {
    run_known(row, row_index, result);
  } else {
    run_continued(row, row_index, result);
  }
  result.rows[row_index].num_tokens =
      static_cast<std::int32_t>(result.token_ids.size()) - result.rows[row_index].first_token;
}

void FakeExecutor::run_known(const step::SequenceRow& row, std::size_t row_index, step::StepResult& result) {
  Slot& slot = slot_of(row);
  for (std::int32_t i = 0; i < row.num_known_tokens; ++i) {
    const std::int32_t position = row.first_position + i;
    write(row, position, slot.histories[static_cast<std::size_t>(position)]);
    if (slot.num_prompt_logprobs >= 0 && position + 1 < slot.num_prompt_tokens) {
      result.prompt_logprobs.resize(result.rows.size());
      result.prompt_logprobs[row_index].push_back(
          logprobs_of(slot.token_ids[static_cast<std::size_t>(position) + 1], slot.num_prompt_logprobs));
    }
  }
  slot.num_computed_tokens = row.first_position + row.num_known_tokens;
  result.num_computed_tokens += row.num_known_tokens;
  if (row.samples) result.rows[row_index].failed = !draw(slot, result);
}

void FakeExecutor::run_continued(const step::SequenceRow& row, std::size_t row_index, step::StepResult& result) {
  Slot& slot = slot_of(row);
  const auto num_drafts = static_cast<std::int32_t>(
      row.max_draft_tokens > 0 ? random_() % (static_cast<std::uint64_t>(row.max_draft_tokens) + 1) : 0);
  const auto last = static_cast<std::int32_t>(slot.token_ids.size()) - 1;
  result.num_computed_tokens += 1 + num_drafts;
  result.rows[row_index].num_draft_tokens = num_drafts;
  write(row, last, slot.histories.back());
  for (std::int32_t i = 1; i <= num_drafts; ++i) write(row, last + i, kRejectedDraft);

  // The draw after the last token, and after each draft that was right.
  slot.num_computed_tokens = last + 1;
  result.rows[row_index].failed = !draw(slot, result);
  std::bernoulli_distribution hit(options_.draft_hit_share);
  for (std::int32_t i = 1; i <= num_drafts && !slot.failed && hit(random_); ++i) {
    entry_at(slot, last + i).history = slot.histories.back();
    if (options_.model.fails(slot.histories.back(), slot.seed)) break;  // left to the next step
    slot.num_computed_tokens = last + 1 + i;
    draw(slot, result);
  }
}

/// False, and nothing drawn, when the logits are not numbers.
bool FakeExecutor::draw(Slot& slot, step::StepResult& result) {
  if (options_.model.fails(slot.histories.back(), slot.seed)) {
    slot.failed = true;
    return false;
  }
  const std::int32_t num_output_tokens = static_cast<std::int32_t>(slot.token_ids.size()) - slot.num_prompt_tokens;
  const std::int32_t token_id =
      options_.model.next_token(slot.histories.back(), slot.seed, num_output_tokens, *slot.sampling);
  slot.append(token_id);
  result.token_ids.push_back(token_id);
  if (slot.sampling->num_logprobs >= 0) {
    result.logprobs.resize(result.token_ids.size());
    result.logprobs.back() = logprobs_of(token_id, slot.sampling->num_logprobs);
  } else if (!result.logprobs.empty()) {
    result.logprobs.resize(result.token_ids.size());
  }
  return true;
}

void FakeExecutor::write(const step::SequenceRow& row, std::int32_t position, std::uint64_t history) {
  const Slot& slot = slot_of(row);
  CacheEntry& entry = entry_at(slot, position);
  if (position < slot.num_cached_tokens) {  // replayed for the state alone
    CHECK_EQ(entry.history, history);
    return;
  }
  const auto index = static_cast<std::size_t>(position / options_.limits.cache.block_size);
  CHECK_EQ(num_holders_[static_cast<std::size_t>(slot.blocks[index])], 1);  // nobody else relies on it
  CHECK(entry.step_id != last_step_id_ || entry.slot == row.slot);          // two writers in one step
  entry = {history, last_step_id_, row.slot};
}

}  // namespace thalweg::simulator
