#include "scheduler/token_budget.h"

#include <gtest/gtest.h>

namespace thalweg::scheduler {
namespace {

TEST(TokenBudget, PromptsAloneGetEverything) {
  const TokenBudget budget({512, 4, 0.2});
  EXPECT_EQ(budget.split({0, true}).num_prefill_tokens, 512);
}

TEST(TokenBudget, StreamsAreServedFirstAndPromptsKeepTheStepShort) {
  TokenBudget budget({512, 0, 0.2});
  EXPECT_EQ(budget.split({8, true}).num_prefill_tokens, 120) << "a guess before the first measurement";
  budget.observe(512, 512, 0.512);  // a token takes 1 ms
  EXPECT_EQ(budget.split({8, true}).num_prefill_tokens, 192);
  for (int i = 0; i < 30; ++i) budget.observe(190, 200, 0.4);  // later 2 ms
  EXPECT_NEAR(budget.split({8, true}).num_prefill_tokens, 92, 1);
  for (int i = 0; i < 30; ++i) budget.observe(190, 200, 0.002);  // a fast device: the batch is the limit
  EXPECT_EQ(budget.split({8, true}).num_prefill_tokens, 504);
}

TEST(TokenBudget, APromptMovesOnHoweverSlowTheMachine) {
  TokenBudget budget({512, 0, 0.2});
  budget.observe(100, 100, 100.0);
  EXPECT_EQ(budget.split({8, true}).num_prefill_tokens, 16);
  const TokenBudget full({9, 0, 0.2});
  EXPECT_EQ(full.split({8, true}).num_prefill_tokens, 1);
}

TEST(TokenBudget, LearnsOnlyFromPrefill) {
  TokenBudget budget({512, 0, 0.2});
  budget.observe(0, 32, 10.0);
  budget.observe(31, 31, 10.0);
  budget.observe(40, 100, 10.0);
  EXPECT_EQ(budget.split({8, true}).num_prefill_tokens, 120);
}

TEST(TokenBudget, DraftsLeaveRoomForPrompts) {
  const TokenBudget budget({64, 4, 10.0});
  const StepBudget alone = budget.split({8, false});
  EXPECT_EQ(alone.max_draft_tokens_per_row, 4);
  const StepBudget shared = budget.split({8, true});
  EXPECT_EQ(shared.max_draft_tokens_per_row, 3);
  EXPECT_EQ(shared.num_prefill_tokens, 32);
  for (std::int32_t num_continuing = 1; num_continuing < 64; ++num_continuing) {
    const StepBudget split = budget.split({num_continuing, true});
    EXPECT_GE(split.num_prefill_tokens, 1);
    EXPECT_LE(num_continuing * (1 + split.max_draft_tokens_per_row) + split.num_prefill_tokens, 64);
  }
}

}  // namespace
}  // namespace thalweg::scheduler
