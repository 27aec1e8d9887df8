// For tests: the smallest engine that can drive an executor. It gives each sequence all its blocks at once, in a
// scrambled order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "step/step_executor.h"

namespace thalweg::worker {

struct DrivenRequest {
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::uint64_t seed = 1;
  std::int32_t max_tokens = 16;
  std::int32_t num_prompt_logprobs = -1;
  std::vector<step::BlockId> hit_blocks;  // whole blocks that already hold the prompt's begin
};

struct DrivenOutput {
  std::vector<std::int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<step::BlockId> blocks;
  bool failed = false;
  std::int32_t num_draft_tokens = 0;
  std::int32_t num_steps = 0;
};

struct DriverOptions {
  std::int32_t chunk = 1 << 20;  // most known tokens of a row
  int in_flight = 1;
  std::int32_t max_drafts = 0;
  std::int32_t max_running = 1 << 20;
  int preempt_every = 0;  // steps; 0: never
  unsigned scramble = 1;  // order of blocks and victims of preemption; 0: blocks from the lowest on
};

class StepDriver {
 public:
  StepDriver(step::StepExecutor& executor, const DriverOptions& options)
      : executor_(executor), options_(options), random_(options.scramble) {
    for (step::SlotId slot = executor.limits().max_slots; slot-- > 0;) free_slots_.push_back(slot);
    for (std::int64_t block = 0; block < executor.limits().num_blocks; ++block) {
      free_blocks_.push_back(static_cast<step::BlockId>(block));
    }
    if (options.scramble != 0) std::shuffle(free_blocks_.begin(), free_blocks_.end(), random_);
  }

  /// Blocks that the driver must not hand out, because they hold a prefix.
  void keep(const std::vector<step::BlockId>& blocks) {
    std::erase_if(free_blocks_, [&](step::BlockId b) { return std::ranges::count(blocks, b) > 0; });
  }

  std::vector<DrivenOutput> run(const std::vector<DrivenRequest>& requests) {
    outputs_.assign(requests.size(), {});
    for (std::size_t i = 0; i < requests.size(); ++i) waiting_.push_back({.request = &requests[i], .index = i});
    while (!waiting_.empty() || !running_.empty() || !in_flight_.empty()) {
      if (options_.preempt_every > 0 && step_id_ % static_cast<unsigned>(options_.preempt_every) == 1) preempt();
      submit();
      while (!in_flight_.empty() && (static_cast<int>(in_flight_.size()) >= options_.in_flight || idle())) collect();
    }
    if (!released_.empty()) submit();
    while (!in_flight_.empty()) collect();
    return outputs_;
  }

 private:
  struct Sequence {
    const DrivenRequest* request = nullptr;
    std::size_t index = 0;
    step::SlotId slot = -1;
    std::int32_t num_computed = 0;  // of the tokens known at its start
    std::int32_t num_known = 0;
    std::vector<step::BlockId> blocks;
    bool has_blocks = false;  // in the executor
  };
  struct Submitted {
    std::vector<std::size_t> sequences;  // per row
  };

  bool idle() const { return waiting_.empty() && running_.empty(); }

  void start(step::StepPlan& plan, Sequence& sequence) {
    const DrivenRequest& request = *sequence.request;
    const auto& generated = outputs_[sequence.index].token_ids;
    auto tokens = std::make_shared<std::vector<std::int32_t>>(request.prompt);
    tokens->insert(tokens->end(), generated.begin(), generated.end());
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    sequence.num_known = static_cast<std::int32_t>(tokens->size());
    sequence.blocks = request.hit_blocks;
    const std::int32_t block_size = executor_.limits().cache.block_size;
    const std::int32_t num_cached = static_cast<std::int32_t>(request.hit_blocks.size()) * block_size;
    sequence.num_computed = std::max(num_cached - executor_.limits().cache.replay_tokens, 0);
    const auto total = static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens + options_.max_drafts;
    const std::int32_t places = std::min(total, executor_.limits().max_model_len);
    while (static_cast<std::int32_t>(sequence.blocks.size()) * block_size < places) {
      CHECK(!free_blocks_.empty());
      sequence.blocks.push_back(free_blocks_.front());
      free_blocks_.pop_front();
    }
    plan.starts.push_back({.slot = sequence.slot,
                           .token_ids = tokens,
                           .num_prompt_tokens = static_cast<std::int32_t>(request.prompt.size()),
                           .num_cached_tokens = num_cached,
                           .sampling = std::make_shared<SamplingParams>(request.sampling),
                           .seed = request.seed,
                           .num_prompt_logprobs = generated.empty() ? request.num_prompt_logprobs : -1});
  }

  void submit() {
    step::StepPlan plan;
    plan.step_id = ++step_id_;
    plan.released_slots.swap(released_);
    Submitted submitted;
    std::int32_t budget = executor_.limits().max_num_batched_tokens;
    for (const bool known : {false, true}) {
      for (Sequence& sequence : running_) {
        if ((sequence.num_computed < sequence.num_known) == known) add_row(plan, submitted, sequence, budget);
      }
    }
    while (budget > 0 && !waiting_.empty() && !free_slots_.empty() &&
           static_cast<std::int32_t>(running_.size()) < options_.max_running) {
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      start(plan, running_.back());
      add_row(plan, submitted, running_.back(), budget);
    }
    if (plan.rows.empty() && plan.released_slots.empty()) return;
    executor_.submit(std::move(plan));
    in_flight_.push_back(std::move(submitted));
  }

  void add_row(step::StepPlan& plan, Submitted& submitted, Sequence& sequence, std::int32_t& budget) {
    step::SequenceRow row{.slot = sequence.slot, .first_position = sequence.num_computed};
    if (sequence.num_computed < sequence.num_known) {
      row.num_known_tokens = std::min({options_.chunk, sequence.num_known - sequence.num_computed, budget});
      if (row.num_known_tokens == 0) return;
      sequence.num_computed += row.num_known_tokens;
      row.samples = sequence.num_computed == sequence.num_known;
      budget -= row.num_known_tokens;
    } else {
      row.max_draft_tokens = std::min(options_.max_drafts, budget - 1);
      if (row.max_draft_tokens < 0) return;
      row.samples = true;
      budget -= 1 + row.max_draft_tokens;
    }
    if (!std::exchange(sequence.has_blocks, true)) {
      row.first_new_block = static_cast<std::int32_t>(plan.block_ids.size());
      row.num_new_blocks = static_cast<std::int32_t>(sequence.blocks.size());
      plan.block_ids.insert(plan.block_ids.end(), sequence.blocks.begin(), sequence.blocks.end());
    }
    plan.rows.push_back(row);
    submitted.sequences.push_back(sequence.index);
  }

  void collect() {
    const Submitted submitted = std::move(in_flight_.front());
    in_flight_.pop_front();
    const step::StepResult result = executor_.collect();
    CHECK_EQ(result.fatal.empty() ? std::string() : result.fatal[0].message, std::string());
    CHECK_EQ(result.rows.size(), submitted.sequences.size());
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
      DrivenOutput& output = outputs_[submitted.sequences[i]];
      const auto sequence =
          std::ranges::find_if(running_, [&](const Sequence& s) { return s.index == submitted.sequences[i]; });
      if (sequence == running_.end()) continue;  // ended while this step was in flight
      if (!result.prompt_logprobs.empty()) {
        const auto& more = result.prompt_logprobs[i];
        output.prompt_logprobs.insert(output.prompt_logprobs.end(), more.begin(), more.end());
      }
      const step::RowResult& row = result.rows[i];
      ++output.num_steps;
      output.num_draft_tokens += row.num_draft_tokens;
      const auto first = static_cast<std::size_t>(row.first_token);
      for (std::size_t t = first; t < first + static_cast<std::size_t>(row.num_tokens); ++t) {
        if (static_cast<std::int32_t>(output.token_ids.size()) == sequence->request->max_tokens) break;
        output.token_ids.push_back(result.token_ids[t]);
        if (sequence->request->sampling.num_logprobs >= 0) output.logprobs.push_back(result.logprobs[t]);
      }
      output.failed = row.failed;
      if (row.failed || static_cast<std::int32_t>(output.token_ids.size()) == sequence->request->max_tokens) {
        output.blocks = sequence->blocks;
        end(sequence);
      }
    }
  }

  void end(std::vector<Sequence>::iterator sequence) {
    released_.push_back(sequence->slot);
    free_slots_.push_back(sequence->slot);
    const auto num_hits = static_cast<std::ptrdiff_t>(sequence->request->hit_blocks.size());
    free_blocks_.insert(free_blocks_.end(), sequence->blocks.begin() + num_hits, sequence->blocks.end());
    running_.erase(sequence);
  }

  /// Throws one sequence out; its tokens so far are recomputed later.
  void preempt() {
    while (!in_flight_.empty()) collect();
    if (running_.size() < 2) return;  // a last one must come to its end
    const auto victim = running_.begin() + static_cast<std::ptrdiff_t>(random_() % running_.size());
    waiting_.push_back({.request = victim->request, .index = victim->index});
    // Without output it will ask for its prompt's logprobs again.
    DrivenOutput& output = outputs_[victim->index];
    if (output.token_ids.empty()) output.prompt_logprobs.clear();
    end(victim);
  }

  step::StepExecutor& executor_;
  const DriverOptions options_;
  std::mt19937 random_;
  std::uint64_t step_id_ = 0;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  std::vector<step::SlotId> free_slots_;
  std::vector<step::SlotId> released_;
  std::deque<step::BlockId> free_blocks_;
  std::deque<Submitted> in_flight_;
  std::vector<DrivenOutput> outputs_;
};

inline bool same_logprob(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token_id == b.token_id && a.logprob == b.logprob && a.rank == b.rank;
}

/// Tokens and logprobs equal bit by bit.
inline void expect_equal(const DrivenOutput& a, const DrivenOutput& b) {
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.failed, b.failed);
  const auto equal = [](const TokenLogprobs& x, const TokenLogprobs& y) {
    return same_logprob(x.chosen, y.chosen) && std::ranges::equal(x.top, y.top, same_logprob);
  };
  EXPECT_TRUE(std::ranges::equal(a.logprobs, b.logprobs, equal));
  EXPECT_TRUE(std::ranges::equal(a.prompt_logprobs, b.prompt_logprobs, equal));
}

}  // namespace thalweg::worker
