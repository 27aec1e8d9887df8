// An executor without a model: it computes hashes, keeps a KV cache of them, and takes time by a
// formula. It aborts on any plan that breaks the contract of step/step_plan.h: also when a sequence's
// state would have a gap or begin elsewhere than the cache's spec says, and when a block that several
// hold would be written.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.h"
#include "simulator/fake_model.h"
#include "step/step_executor.h"

namespace thalweg::simulator {

/// Seconds of one step.
struct StepCost {
  double base_s = 0.005;
  double per_token_s = 0.001;
  double per_context_token_s = 1e-7;  // of every row
};

struct FakeExecutorOptions {
  FakeModel model;
  step::ExecutorLimits limits;  // vocab_size is the model's
  StepCost cost;
  double draft_hit_share = 0.6;     // of drafts that are what the model would say
  std::uint64_t fatal_step_id = 0;  // the device is gone when this step runs; 0: never
  std::uint64_t random_seed = 1;    // for drafts
  bool verify_cache = true;         // every cached token of every row in every step
};

/// Results are made at `submit` and handed out at `collect`, when their time has come.
class FakeExecutor final : public step::StepExecutor {
 public:
  /// `wait_until` makes `clock` reach a time: a virtual clock jumps, a real one is slept for.
  FakeExecutor(const FakeExecutorOptions& options, const Clock& clock, std::function<void(double)> wait_until);

  const step::ExecutorLimits& limits() const override { return options_.limits; }
  void submit(step::StepPlan plan) override;
  step::StepResult collect() override;

 private:
  struct Slot {
    bool held = false;
    bool failed = false;
    std::vector<std::int32_t> token_ids;
    std::vector<std::uint64_t> histories;  // after each token
    std::int32_t num_prompt_tokens = 0;
    std::int32_t num_cached_tokens = 0;    // of the prefix hit it started with
    std::int32_t num_computed_tokens = 0;  // where its state ends
    std::shared_ptr<const SamplingParams> sampling;
    std::uint64_t seed = 0;
    std::int32_t num_prompt_logprobs = -1;
    std::vector<step::BlockId> blocks;
    std::uint64_t last_row_step_id = 0;

    void append(std::int32_t token_id);
  };
  struct CacheEntry {
    std::uint64_t history = 0;
    std::uint64_t step_id = 0;  // written in
    step::SlotId slot = -1;     // written by
  };
  struct Pending {
    double done_s = 0.0;
    step::StepResult result;
  };

  void apply_starts(const step::StepPlan& plan);
  void read_rows(const step::StepPlan& plan);
  void check_hit(const step::SequenceStart& start) const;
  void check_row(const step::StepPlan& plan, const step::SequenceRow& row);
  void run_row(const step::SequenceRow& row, std::size_t row_index, step::StepResult& result);
  void run_known(const step::SequenceRow& row, std::size_t row_index, step::StepResult& result);
  void run_continued(const step::SequenceRow& row, std::size_t row_index, step::StepResult& result);
  bool draw(Slot& slot, step::StepResult& result);
  void write(const step::SequenceRow& row, std::int32_t position, std::uint64_t history);
  CacheEntry& entry_at(const Slot& slot, std::int32_t position);
  Slot& slot_of(const step::SequenceRow& row) { return slots_[static_cast<std::size_t>(row.slot)]; }

  FakeExecutorOptions options_;
  const Clock& clock_;
  const std::function<void(double)> wait_until_;
  std::vector<Slot> slots_;
  std::vector<CacheEntry> cache_;          // [num_blocks, block_size]
  std::vector<std::int32_t> num_holders_;  // [num_blocks], slots whose tables name the block
  std::deque<Pending> pending_;
  std::mt19937_64 random_;
  std::uint64_t last_step_id_ = 0;
  double busy_until_s_ = 0.0;
};

}  // namespace thalweg::simulator
