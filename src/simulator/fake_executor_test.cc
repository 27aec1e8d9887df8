// The contract's checks see what they are for: without them the simulations would prove less.
#include "simulator/fake_executor.h"

#include <gtest/gtest.h>

#include <utility>

#include "simulator/virtual_clock.h"

namespace thalweg::simulator {
namespace {

constexpr std::int32_t kReplayTokens = 3;

/// Four slots, blocks of 4 tokens, hits of whole 8 tokens with a replay.
struct Fixture {
  VirtualClock clock;
  FakeExecutor executor{make_options(), clock, [this](double time_s) { clock.advance_to(time_s); }};
  std::uint64_t last_step_id = 0;

  static FakeExecutorOptions make_options() {
    FakeExecutorOptions options;
    options.limits.max_model_len = 64;
    options.limits.max_slots = 4;
    options.limits.max_num_batched_tokens = 64;
    options.limits.num_blocks = 16;
    options.limits.cache = {.block_size = 4, .hit_granularity = 8, .replay_tokens = kReplayTokens};
    return options;
  }

  step::StepResult run(step::StepPlan plan) {
    plan.step_id = ++last_step_id;
    executor.submit(std::move(plan));
    return executor.collect();
  }
};

/// A sequence of 11 equal tokens starts in `slot`, with a hit, and computes all from `first_position` on.
step::StepPlan start_plan(step::SlotId slot, std::vector<step::BlockId> blocks, std::int32_t num_cached_tokens,
                          std::int32_t first_position) {
  step::StepPlan plan;
  plan.starts.push_back({.slot = slot,
                         .token_ids = std::make_shared<std::vector<std::int32_t>>(11, 5),
                         .num_prompt_tokens = 11,
                         .num_cached_tokens = num_cached_tokens,
                         .sampling = std::make_shared<SamplingParams>()});
  plan.block_ids = std::move(blocks);
  plan.rows.push_back({.slot = slot,
                       .first_position = first_position,
                       .num_known_tokens = 11 - first_position,
                       .num_new_blocks = static_cast<std::int32_t>(plan.block_ids.size()),
                       .samples = true});
  return plan;
}

TEST(FakeExecutor, AReplayedHitContinuesAsTheFirstDid) {
  Fixture f;
  const step::StepResult first = f.run(start_plan(0, {3, 1, 2}, 0, 0));
  const step::StepResult second = f.run(start_plan(1, {3, 1, 7}, 8, 8 - kReplayTokens));
  EXPECT_EQ(second.token_ids, first.token_ids);
  EXPECT_EQ(second.num_computed_tokens, 3 + kReplayTokens);
}

TEST(FakeExecutor, AHitWithoutItsStateDies) {
  Fixture f;
  f.run(start_plan(0, {3, 1, 2}, 0, 0));
  EXPECT_DEATH(f.run(start_plan(1, {3, 1, 7}, 8, 8)), "first_position == slot.num_computed_tokens");
  EXPECT_DEATH(f.run(start_plan(1, {3, 1, 7}, 8, 4)), "first_position == slot.num_computed_tokens");
}

TEST(FakeExecutor, AHitThatIsNoneDies) {
  Fixture f;
  f.run(start_plan(0, {3, 1, 2}, 0, 0));
  EXPECT_DEATH(f.run(start_plan(1, {3, 4, 7}, 8, 5)), "entry_at") << "foreign content";
  EXPECT_DEATH(f.run(start_plan(1, {3, 1, 7}, 4, 1)), "hit_granularity");
  step::StepPlan scored = start_plan(1, {3, 1, 7}, 8, 5);
  scored.starts[0].num_prompt_logprobs = 1;
  EXPECT_DEATH(f.run(scored), "num_prompt_logprobs");
}

TEST(FakeExecutor, ASharedBlockIsNotWritten) {
  Fixture f;
  f.run(start_plan(0, {3, 1, 2}, 0, 0));
  EXPECT_DEATH(f.run(start_plan(1, {3, 1, 2}, 8, 5)), "num_holders_") << "the open block of another";
  step::StepPlan handed_on = start_plan(1, {3, 1, 2}, 8, 5);
  handed_on.released_slots = {0};
  EXPECT_EQ(f.run(handed_on).rows[0].num_tokens, 1);
}

}  // namespace
}  // namespace thalweg::simulator
