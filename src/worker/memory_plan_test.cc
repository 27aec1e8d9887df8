#include "worker/memory_plan.h"

#include <gtest/gtest.h>

#include "worker/fake_model.h"

namespace thalweg::worker {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// About SmolLM2's numbers.
models::ModelInfo small_model() {
  models::ModelInfo model;
  model.vocab_size = 49152;
  model.max_position = 8192;
  model.cache.block_size = 16;
  model.cache.bytes_per_block = 16 * 23040;
  return model;
}

TEST(MemoryPlan, DefaultIsWhatAllSequencesCouldUseWithinHalfOfWhatIsFree) {
  const auto roomy = plan_memory(small_model(), {.max_num_seqs = 4}, 100 * kGiB);
  ASSERT_TRUE(roomy.has_value());
  EXPECT_EQ(roomy->num_blocks, 4 * 512);
  EXPECT_EQ(roomy->max_model_len, 8192);

  const auto tight = plan_memory(small_model(), {.max_num_seqs = 64}, kGiB);
  ASSERT_TRUE(tight.has_value());
  EXPECT_LE(tight->cache_bytes, kGiB / 2);
  EXPECT_GT(tight->cache_bytes, kGiB / 2 - 16 * 23040);
  EXPECT_EQ(tight->max_model_len, 8192);
}

TEST(MemoryPlan, ALengthNobodyAskedForIsShortened) {
  const auto plan = plan_memory(small_model(), {.kv_cache_bytes = 100 * 16 * 23040}, kGiB);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->num_blocks, 100);
  EXPECT_EQ(plan->max_model_len, 1600);
}

TEST(MemoryPlan, RefusesWhatCannotBeWithBothNumbers) {
  const auto error = [](const WorkerOptions& options, std::int64_t available) {
    const auto plan = plan_memory(small_model(), options, available);
    EXPECT_FALSE(plan.has_value());
    return plan ? Error{} : plan.error();
  };
  Error found = error({.max_model_len = 4096, .kv_cache_bytes = 1 << 20}, kGiB);
  EXPECT_EQ(found.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(found.message,
            "one sequence of 4096 tokens needs 90.0 MiB of KV cache, but 1.0 MiB are given: raise kv_cache_bytes or "
            "lower max_model_len");
  EXPECT_EQ(found.param, "kv_cache_bytes");
  EXPECT_EQ(error({.max_model_len = 9000}, kGiB).param, "max_model_len");
  EXPECT_EQ(error({.kv_cache_bytes = 2 * kGiB}, kGiB).param, "kv_cache_bytes");
  EXPECT_EQ(error({.kv_cache_bytes = 1}, kGiB).code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error({}, 0).code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error({.max_num_seqs = 64, .max_num_batched_tokens = 63}, kGiB).param, "max_num_batched_tokens");
  EXPECT_EQ(error({.max_num_seqs = -1}, kGiB).param, "max_num_seqs");
  EXPECT_EQ(error({.num_draft_tokens = 1000}, kGiB).param, "num_draft_tokens");
}

TEST(MemoryPlan, LogitsStateAndCacheFitTogether) {
  models::ModelInfo model = small_model();
  model.cache.state_bytes_per_slot = 8 << 20;
  const auto tight = plan_memory(model, {.max_num_seqs = 64}, 640 << 20);  // 512 MiB of state, 24 MiB of logits
  ASSERT_TRUE(tight.has_value());
  EXPECT_LE(tight->state_bytes + tight->logit_bytes + tight->cache_bytes, 640 << 20);
  EXPECT_GT(tight->cache_bytes, 0);

  const auto no_room = plan_memory(model, {.max_num_seqs = 64}, 500 << 20);
  ASSERT_FALSE(no_room.has_value());
  EXPECT_EQ(
      no_room.error().message,
      "36.0 MiB of memory are missing: logits take 24.0 MiB, the state of 64 sequences 512.0 MiB and kv_cache_bytes "
      "0.0 MiB, but 500.0 MiB are available; lower max_num_seqs");
  EXPECT_EQ(no_room.error().param, "max_num_seqs");

  const auto large_cache = plan_memory(model, {.max_num_seqs = 64, .kv_cache_bytes = 128 << 20}, 640 << 20);
  ASSERT_FALSE(large_cache.has_value());
  EXPECT_TRUE(large_cache.error().message.starts_with("24.0 MiB of memory are missing"));
  EXPECT_EQ(large_cache.error().param, "kv_cache_bytes");
}

TEST(MemoryPlan, BatchLimitsFitEachOther) {
  const auto small_step = plan_memory(small_model(), {.max_num_batched_tokens = 16}, kGiB);
  ASSERT_TRUE(small_step.has_value());
  EXPECT_EQ(small_step->max_num_seqs, 16);
  const auto many = plan_memory(small_model(), {.max_num_seqs = 2000}, kGiB);
  ASSERT_TRUE(many.has_value());
  EXPECT_EQ(many->max_num_batched_tokens, 2000);
}

TEST(MemoryPlan, LogitsStayBoundedForLargeVocabularies) {
  models::ModelInfo model = small_model();
  model.vocab_size = 262144;
  const auto plan = plan_memory(model, {.max_num_seqs = 4}, kGiB);
  ASSERT_TRUE(plan.has_value());
  EXPECT_LE(plan->logit_bytes, 32 << 20);
  EXPECT_GE(plan->max_logit_rows, plan->prompt_logprob_tokens);
}

TEST(MemoryPlan, SomethingIsAvailableHere) { EXPECT_GT(available_memory_bytes(), 1 << 20); }

}  // namespace
}  // namespace thalweg::worker
