// One promise of the engine per test, on a virtual clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "simulation.h"

namespace thalweg::simulator {
namespace {

using testing::HasSubstr;

const Error* error_of(const SequenceRecord& record) {
  return record.finish && record.finish->error ? &*record.finish->error : nullptr;
}

// --- The same answer however it is scheduled

TEST(Engine, AnswersDoNotDependOnTheBatch) {
  const GenerateRequest request = make_request(30, 40, 42);
  for (const std::int32_t num_others : {0, 1, 7, 63}) {
    for (const std::int32_t num_drafts : {0, 3}) {
      FakeExecutorOptions executor = small_executor();
      executor.limits.max_draft_tokens = num_drafts;
      EngineOptions options;
      options.num_draft_tokens = num_drafts;
      Simulation simulation(executor, options);
      for (std::int32_t i = 0; i < num_others; ++i) {
        GenerateRequest other = make_request(5 + i, 10 + i, static_cast<std::uint64_t>(i));
        other.sampling.seed.reset();
        ASSERT_TRUE(simulation.engine.submit(other, simulation.sink));
      }
      const RequestId id = simulation.submit(request);
      const RequestId twin = simulation.submit(request);
      simulation.run();
      simulation.expect_right_answer(id);
      simulation.expect_right_answer(twin);
    }
  }
}

TEST(Engine, APreemptedSequenceGoesOnWhereItWas) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.num_blocks = 20;  // 80 tokens
  Simulation simulation(executor);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 4; ++i) ids.push_back(simulation.submit(make_request(10, 50, i)));
  simulation.run();
  for (RequestId id : ids) simulation.expect_right_answer(id);
  EXPECT_GT(simulation.engine.stats().num_preemptions, 0U);
  EXPECT_EQ(simulation.sequence(ids[0]).finish->num_preemptions, 0) << "the first never yields";
}

TEST(Engine, SequencesOfARequestDifferAndAbsentSeedsAreDrawn) {
  Simulation simulation;
  GenerateRequest request = make_request(9, 20, 7);
  request.num_sequences = 3;
  const RequestId seeded = simulation.submit(request);
  request.num_sequences = 1;
  const RequestId alone = simulation.submit(request);
  request.sampling.seed.reset();
  const Result<RequestId> unseeded = simulation.engine.submit(request, simulation.sink);
  const Result<RequestId> unseeded_twin = simulation.engine.submit(request, simulation.sink);
  ASSERT_TRUE(unseeded && unseeded_twin);
  simulation.run();
  std::set<std::vector<std::int32_t>> outputs;
  for (std::int32_t i = 0; i < 3; ++i) outputs.insert(simulation.sequence(seeded, i).token_ids);
  EXPECT_EQ(outputs.size(), 3U);
  EXPECT_EQ(simulation.sequence(seeded, 0).token_ids, simulation.sequence(alone).token_ids);
  EXPECT_NE(simulation.sequence(*unseeded).token_ids, simulation.sequence(*unseeded_twin).token_ids);
}

TEST(Engine, AcceptedDraftsSaveSteps) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_draft_tokens = 4;
  executor.draft_hit_share = 1.0;
  EngineOptions options;
  options.num_draft_tokens = 4;
  Simulation simulation(executor, options);
  const RequestId id = simulation.submit(make_request(10, 100, 1));
  simulation.run();
  simulation.expect_right_answer(id);
  const EngineStats stats = simulation.engine.stats();
  EXPECT_LT(stats.num_steps, 60U);
  EXPECT_GT(stats.num_drafts, 0U);
  EXPECT_EQ(stats.num_accepted_tokens, stats.num_draft_tokens);
  EXPECT_EQ(simulation.sequence(id).finish->num_output_tokens, 100);
}

// --- Sharing

TEST(Engine, ARepeatedPromptHitsThePrefixCache) {
  Simulation simulation;
  GenerateRequest request = make_request(41, 5, 1);
  const RequestId first = simulation.submit(request);
  simulation.run();
  const RequestId again = simulation.submit(request);
  request.cache_salt = "other";
  const RequestId salted = simulation.submit(request);
  request.cache_salt.clear();
  request.num_prompt_logprobs = 1;
  const RequestId scored = simulation.submit(request);
  simulation.run();
  EXPECT_EQ(simulation.sequence(first).start->num_cached_tokens, 0);
  EXPECT_EQ(simulation.sequence(again).start->num_cached_tokens, 40);
  EXPECT_EQ(simulation.sequence(again).finish->num_cached_tokens, 40);
  EXPECT_EQ(simulation.sequence(salted).start->num_cached_tokens, 0);
  EXPECT_EQ(simulation.sequence(scored).start->num_cached_tokens, 0) << "its prompt must be scored";
  for (RequestId id : {first, again, salted, scored}) simulation.expect_right_answer(id);
}

TEST(Engine, AHitIsReplayedForTheStateWithinTheBudget) {
  for (const auto& [replay_tokens, num_computed_tokens] : {std::pair(0, 1), {7, 8}, {30, 31}, {100, 41}}) {
    FakeExecutorOptions executor = small_executor();
    executor.limits.max_num_batched_tokens = 8;
    executor.limits.cache.replay_tokens = replay_tokens;
    Simulation simulation(executor);
    const GenerateRequest request = make_request(41, 5, 1);
    const RequestId first = simulation.submit(request);
    simulation.run();
    const std::uint64_t num_steps_before = simulation.engine.stats().num_steps;
    const RequestId again = simulation.submit(request);
    simulation.run();
    EXPECT_EQ(simulation.sequence(again).start->num_cached_tokens, 40) << "what need not be kept twice";
    const std::uint64_t num_steps = simulation.engine.stats().num_steps - num_steps_before;
    EXPECT_EQ(num_steps, static_cast<std::uint64_t>((num_computed_tokens + 7) / 8 + 4));
    for (RequestId id : {first, again}) simulation.expect_right_answer(id);
  }
}

TEST(Engine, AConversationHitsItsOwnOutput) {
  Simulation simulation;
  GenerateRequest request = make_request(20, 20, 1);
  const RequestId first = simulation.submit(request);
  simulation.run();
  const std::vector<std::int32_t>& answer = simulation.sequence(first).token_ids;
  request.prompt_ids.insert(request.prompt_ids.end(), answer.begin(), answer.end());
  request.prompt_ids.push_back(5);
  const RequestId second = simulation.submit(request);
  simulation.run();
  EXPECT_EQ(simulation.sequence(second).start->num_cached_tokens, 36);  // full blocks of what was computed
  simulation.expect_right_answer(second);
}

TEST(Engine, SequencesOfARequestComputeThePromptOnce) {
  for (const auto& [enable_prefix_cache, replay_tokens] : {std::pair(true, 0), {false, 0}, {true, 6}, {false, 6}}) {
    FakeExecutorOptions executor = small_executor();
    executor.limits.max_num_batched_tokens = 16;  // the prompt takes several steps
    executor.limits.cache.replay_tokens = replay_tokens;
    EngineOptions options;
    options.enable_prefix_cache = enable_prefix_cache;
    Simulation simulation(executor, options);
    GenerateRequest request = make_request(50, 4, 3);
    request.num_sequences = 5;
    const RequestId id = simulation.submit(request);
    std::int64_t num_computed_tokens = 0;
    std::uint64_t num_steps = 0;
    std::int64_t max_used = 0;
    while (simulation.turn()) {
      const EngineStats stats = simulation.engine.stats();
      if (stats.num_steps > num_steps) num_computed_tokens += stats.last_step_tokens;
      num_steps = stats.num_steps;
      max_used = std::max(max_used, stats.num_blocks_used);
    }
    for (std::int32_t i = 0; i < 5; ++i) simulation.expect_right_answer(id, i);
    EXPECT_EQ(num_computed_tokens, 50 + 4 * (replay_tokens + 2) + 5 * 3) << "prompt once, four tails, decode";
    EXPECT_LE(max_used, 12 + 5 * 2) << "blocks are shared to the hit's end";
    EXPECT_EQ(simulation.engine.stats().num_prompt_tokens, 50U);
  }
}

TEST(Engine, HeldSequencesSurviveTheLossOfTheFirst) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_num_batched_tokens = 8;
  Simulation simulation(executor);
  GenerateRequest request = make_request(50, 4, 3);
  request.num_sequences = 3;
  const RequestId id = simulation.submit(request);
  simulation.turn();
  simulation.engine.cancel_sequence(id, 0);
  simulation.turn();
  simulation.engine.cancel_sequence(id, 1);
  simulation.run();
  EXPECT_EQ(simulation.sequence(id, 0).finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(simulation.sequence(id, 1).finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(simulation.sequence(id, 2).finish->reason, FinishReason::kLength);
  simulation.expect_right_answer(id, 2);
}

// --- Ends

TEST(Engine, MaxTokensZeroOnlyScoresThePrompt) {
  Simulation simulation;
  GenerateRequest request = make_request(100, 0, 1);
  request.num_prompt_logprobs = 2;
  const RequestId id = simulation.submit(request);
  simulation.run();
  simulation.expect_right_answer(id);
  EXPECT_EQ(simulation.sequence(id).finish->reason, FinishReason::kLength);
  EXPECT_EQ(simulation.sequence(id).start->prompt_logprobs.size(), 99U);
  EXPECT_TRUE(simulation.sequence(id).token_ids.empty());
}

TEST(Engine, CancelIsAnsweredInTheNextTurn) {
  Simulation simulation;
  const RequestId running = simulation.submit(make_request(10, 100, 1));
  for (int i = 0; i < 5; ++i) simulation.turn();
  std::vector<RequestId> waiting;
  for (std::uint64_t i = 0; i < 20; ++i) waiting.push_back(simulation.submit(make_request(10, 100, i)));
  simulation.turn();
  simulation.engine.cancel(running);
  for (RequestId id : waiting) simulation.engine.cancel(id);
  simulation.engine.cancel(RequestId{999});
  simulation.turn();
  for (RequestId id : waiting) {
    ASSERT_TRUE(simulation.sequence(id).finish);
    EXPECT_EQ(simulation.sequence(id).finish->reason, FinishReason::kCancelled);
  }
  ASSERT_TRUE(simulation.sequence(running).finish);
  const EngineStats stats = simulation.engine.stats();
  EXPECT_EQ(stats.num_blocks_used, 0);
  EXPECT_EQ(stats.num_running, 0);
  simulation.run();
}

TEST(Engine, GaugesAreRightAfterAStormOfCancels) {
  EngineOptions options;
  options.max_queued_requests = 200;
  Simulation simulation(small_executor(), options);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 200; ++i) ids.push_back(simulation.submit(make_request(20, 50, i)));
  for (int i = 0; i < 10; ++i) simulation.turn();
  for (RequestId id : ids) simulation.engine.cancel(id);
  simulation.run(10);
  const EngineStats stats = simulation.engine.stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_blocks_used, 0);
  EXPECT_EQ(stats.num_requests_admitted, 200U);
  EXPECT_EQ(stats.num_sequences_cancelled + stats.num_sequences_finished, 200U);
  EXPECT_EQ(simulation.sink->num_finished(), 200U);
}

/// Looks at the engine's numbers whenever something is delivered.
class StatsSink final : public EventSink {
 public:
  explicit StatsSink(const Engine& engine) : engine_(engine) {}
  void deliver(std::vector<Event>) override { stats = engine_.stats(); }

  EngineStats stats;

 private:
  const Engine& engine_;
};

TEST(Engine, AnEndIsCountedBeforeItIsTold) {
  Simulation simulation;
  const auto sink = std::make_shared<StatsSink>(simulation.engine);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Result<RequestId> id = simulation.engine.submit(make_request(20, 50, i), sink);
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  for (int i = 0; i < 10; ++i) simulation.turn();
  EXPECT_GT(sink->stats.num_running, 0);
  for (RequestId id : ids) simulation.engine.cancel(id);
  simulation.turn();
  EXPECT_EQ(sink->stats.num_running, 0);
  EXPECT_EQ(sink->stats.num_waiting, 0);
  EXPECT_EQ(sink->stats.num_blocks_used, 0);
  EXPECT_EQ(sink->stats.num_sequences_cancelled, 20U);
}

TEST(Engine, DeadlinesEndWhatWaitsAndWhatRuns) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_slots = 1;
  Simulation simulation(executor);
  GenerateRequest request = make_request(10, 200, 1);
  request.timeout_s = 0.1;
  const RequestId running = simulation.submit(request);
  request.timeout_s = 0.05;
  const RequestId waiting = simulation.submit(request);
  request.timeout_s = 100.0;
  const RequestId patient = simulation.submit(request);
  simulation.run();
  for (const auto& [id, deadline_s] : {std::pair(running, 0.1), std::pair(waiting, 0.05)}) {
    const Error* error = error_of(simulation.sequence(id));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, ErrorCode::kDeadlineExceeded);
    const RequestTimings& timings = simulation.sequence(id).finish->timings;
    EXPECT_NEAR(timings.queue_s + timings.prefill_s + timings.decode_s, deadline_s, 0.03);
  }
  EXPECT_FALSE(simulation.sequence(running).token_ids.empty());
  EXPECT_TRUE(simulation.sequence(waiting).token_ids.empty());
  simulation.expect_right_answer(patient);
}

TEST(Engine, AFailedRowEndsItsSequenceAlone) {
  FakeExecutorOptions executor = small_executor();
  executor.model.failure_share = 0.05;
  Simulation simulation(executor);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 30; ++i) ids.push_back(simulation.submit(make_request(12, 20, i)));
  simulation.run();
  int num_failed = 0;
  for (RequestId id : ids) {
    simulation.expect_right_answer(id);
    if (const Error* error = error_of(simulation.sequence(id))) {
      EXPECT_EQ(error->code, ErrorCode::kInternal);
      ++num_failed;
    }
  }
  EXPECT_GT(num_failed, 3);
  EXPECT_LT(num_failed, 30);
}

TEST(Engine, WhatAFailedSequenceComputedIsNotFoundAgain) {
  FakeExecutorOptions executor = small_executor();
  executor.model.failure_share = 1.0;
  Simulation simulation(executor);
  const GenerateRequest request = make_request(41, 5, 1);
  for (int i = 0; i < 2; ++i) {
    const RequestId id = simulation.submit(request);
    simulation.run();
    ASSERT_NE(error_of(simulation.sequence(id)), nullptr);
    EXPECT_EQ(simulation.sequence(id).finish->num_cached_tokens, 0);
  }
}

TEST(Engine, ALostDeviceEndsEverythingAndClosesTheDoor) {
  FakeExecutorOptions executor = small_executor();
  executor.fatal_step_id = 5;
  Simulation simulation(executor);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 30; ++i) ids.push_back(simulation.submit(make_request(12, 20, i)));
  simulation.run();
  for (RequestId id : ids) {
    const Error* error = error_of(simulation.sequence(id));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, ErrorCode::kUnavailable);
  }
  const Result<RequestId> late = simulation.engine.submit(make_request(12, 20, 1), simulation.sink);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(simulation.engine.stats().device_lost);
}

TEST(Engine, CloseDrainsThenCancels) {
  Simulation simulation;
  const RequestId quick = simulation.submit(make_request(10, 10, 1));
  const RequestId slow = simulation.submit(make_request(10, 240, 2));
  simulation.turn();
  simulation.engine.close(0.5);
  EXPECT_EQ(simulation.sequence(quick).finish->reason, FinishReason::kLength);
  EXPECT_EQ(simulation.sequence(slow).finish->reason, FinishReason::kCancelled);
  EXPECT_GT(simulation.sequence(slow).token_ids.size(), 10U);
  const Result<RequestId> late = simulation.engine.submit(make_request(12, 20, 1), simulation.sink);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  simulation.engine.close(0.0);
}

// --- Admission

TEST(Engine, WhatCanNeverRunIsRefusedWithBothNumbers) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_model_len = 512;  // the pool holds 256
  Simulation simulation(executor);
  EXPECT_EQ(simulation.engine.model().max_model_len, 256);
  const auto refusal = [&](std::int32_t num_prompt_tokens, std::int32_t max_tokens) {
    return simulation.engine.submit(make_request(num_prompt_tokens, max_tokens, 1), simulation.sink).error();
  };
  const Error beyond_pool = refusal(300, 10);
  EXPECT_EQ(beyond_pool.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(beyond_pool.param, "prompt");
  EXPECT_THAT(beyond_pool.message, testing::AllOf(HasSubstr("300"), HasSubstr("256")));
  const Error output_beyond_pool = refusal(200, 57);
  EXPECT_EQ(output_beyond_pool.param, "max_tokens");
  EXPECT_THAT(output_beyond_pool.message, testing::AllOf(HasSubstr("257"), HasSubstr("256"), HasSubstr("56")));
  const Error beyond_model = refusal(600, 10);
  EXPECT_EQ(beyond_model.param, "prompt");
  EXPECT_THAT(beyond_model.message, testing::AllOf(HasSubstr("600"), HasSubstr("512")));
  EXPECT_EQ(refusal(256, 1).param, "prompt");

  // Small ones run as ever, and so does one that takes the whole pool.
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 10; ++i) ids.push_back(simulation.submit(make_request(10, 10, i)));
  ids.push_back(simulation.submit(make_request(200, 56, 3)));
  for (std::uint64_t i = 0; i < 10; ++i) ids.push_back(simulation.submit(make_request(100, 100, i)));
  simulation.run(5000);
  for (RequestId id : ids) simulation.expect_right_answer(id);
  EXPECT_EQ(simulation.engine.stats().num_requests_rejected, 4U);
  EXPECT_EQ(simulation.engine.stats().num_requests_admitted, 21U);
}

TEST(Engine, AFullQueueRefusesAndRecovers) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_slots = 2;
  EngineOptions options;
  options.max_queued_requests = 3;
  Simulation simulation(executor, options);
  for (std::uint64_t i = 0; i < 3; ++i) simulation.submit(make_request(10, 50, i));
  const Result<RequestId> refused = simulation.engine.submit(make_request(10, 50, 9), simulation.sink);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  simulation.turn();  // two start
  simulation.submit(make_request(10, 50, 4));
  simulation.submit(make_request(10, 50, 5));
  EXPECT_FALSE(simulation.engine.submit(make_request(10, 50, 9), simulation.sink));
  simulation.run();
  EXPECT_EQ(simulation.engine.stats().num_sequences_finished, 5U);
}

TEST(Engine, ClientsWithEqualRequestsStayApart) {
  Simulation simulation;
  const GenerateRequest request = make_request(10, 60, 1);
  const RequestId one = simulation.submit(request);
  for (int i = 0; i < 5; ++i) simulation.turn();
  const RequestId other = simulation.submit(request);
  EXPECT_NE(one, other);
  for (int i = 0; i < 5; ++i) simulation.turn();
  simulation.engine.cancel(one);
  simulation.run();
  EXPECT_EQ(simulation.sequence(one).finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(simulation.sequence(other).finish->reason, FinishReason::kLength);
  simulation.expect_right_answer(one);
  simulation.expect_right_answer(other);
}

TEST(Engine, PromptsThatDoNotFitTogetherWaitInsteadOfPushingEachOtherOut) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_num_batched_tokens = 16;  // a prompt takes many steps
  Simulation simulation(executor);              // 256 tokens in the pool
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 6; ++i) ids.push_back(simulation.submit(make_request(127, 40, i)));
  simulation.run();
  for (RequestId id : ids) simulation.expect_right_answer(id);
  EXPECT_EQ(simulation.engine.stats().num_preemptions, 0U);
}

// --- Order and pace

TEST(Engine, BetterPriorityTakesThePlaceOfWorse) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_slots = 2;
  Simulation simulation(executor);
  GenerateRequest batch = make_request(20, 80, 1);
  batch.priority = 5;
  const RequestId first_batch = simulation.submit(batch);
  const RequestId second_batch = simulation.submit(batch);
  for (int i = 0; i < 10; ++i) simulation.turn();
  const double asked_s = simulation.clock.now();
  const RequestId urgent = simulation.submit(make_request(20, 10, 3));
  while (!simulation.sequence(urgent).finish) ASSERT_TRUE(simulation.turn());
  EXPECT_LT(simulation.clock.now() - asked_s, 0.2);
  EXPECT_FALSE(simulation.sequence(second_batch).finish);
  simulation.run();
  EXPECT_EQ(simulation.sequence(first_batch).finish->num_preemptions, 0);
  EXPECT_EQ(simulation.sequence(second_batch).finish->num_preemptions, 1);
  for (RequestId id : {first_batch, second_batch, urgent}) simulation.expect_right_answer(id);
}

TEST(Engine, NobodyGivesWayInVain) {
  Simulation simulation;                            // 64 blocks of 4 tokens
  GenerateRequest batch = make_request(40, 12, 1);  // 10 blocks that all four hold
  batch.priority = 5;
  batch.num_sequences = 4;
  const RequestId first = simulation.submit(make_request(140, 20, 2));  // 40 blocks at its end, gives way to nobody
  const RequestId shared = simulation.submit(batch);
  for (int i = 0; i < 6; ++i) simulation.turn();
  ASSERT_EQ(simulation.engine.stats().num_running, 5);
  GenerateRequest better = make_request(120, 10, 3);  // more than the batch's sequences could give together
  better.priority = 1;
  const RequestId waits = simulation.submit(better);
  simulation.run();
  EXPECT_EQ(simulation.engine.stats().num_preemptions, 0U);
  for (RequestId id : {first, waits}) simulation.expect_right_answer(id);
  for (std::int32_t i = 0; i < 4; ++i) simulation.expect_right_answer(shared, i);
}

TEST(Engine, EqualPriorityIsFirstComeFirstServed) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_slots = 1;
  Simulation simulation(executor);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 5; ++i) ids.push_back(simulation.submit(make_request(10, 10, i)));
  simulation.run();
  for (std::size_t i = 1; i < ids.size(); ++i) {
    EXPECT_LT(simulation.sequence(ids[i - 1]).token_times_s.back(), simulation.sequence(ids[i]).token_times_s.front());
  }
}

TEST(Engine, StreamsKeepTheirPaceWhileALongPromptArrives) {
  FakeExecutorOptions executor = small_executor();
  executor.limits.max_model_len = 8192;
  executor.limits.max_slots = 16;
  executor.limits.max_num_batched_tokens = 2048;
  executor.limits.num_blocks = 4096;
  executor.verify_cache = false;
  EngineOptions options;
  options.target_step_s = 0.2;
  Simulation simulation(executor, options);  // one token takes 1 ms: the prompt alone 4 s
  std::vector<RequestId> streams;
  for (std::uint64_t i = 0; i < 8; ++i) streams.push_back(simulation.submit(make_request(16, 200, i)));
  for (int i = 0; i < 20; ++i) simulation.turn();
  const double asked_s = simulation.clock.now();
  const RequestId prompt = simulation.submit(make_request(4000, 4, 99));
  simulation.run();

  double widest_gap_s = 0.0;
  for (RequestId id : streams) {
    const std::vector<double>& times_s = simulation.sequence(id).token_times_s;
    for (std::size_t i = 1; i < times_s.size(); ++i) {
      widest_gap_s = std::max(widest_gap_s, times_s[i] - times_s[i - 1]);
    }
  }
  EXPECT_LT(widest_gap_s, 0.25);
  EXPECT_LT(simulation.sequence(prompt).token_times_s.front() - asked_s, 5.0) << "and the prompt is not starved";
}

TEST(Engine, OneDeliveryPerSinkAndStep) {
  Simulation simulation;
  for (std::uint64_t i = 0; i < 8; ++i) simulation.submit(make_request(8, 30, i));
  simulation.run();
  EXPECT_EQ(simulation.engine.stats().num_output_tokens, 240U);
  EXPECT_LE(simulation.sink->num_deliveries(), static_cast<int>(simulation.engine.stats().num_steps));
}

TEST(Engine, IdleMeansNoWork) {
  Simulation simulation;
  EXPECT_FALSE(simulation.turn());
  simulation.submit(make_request(8, 4, 1));
  simulation.run();
  const std::uint64_t num_steps = simulation.engine.stats().num_steps;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(simulation.turn());
  EXPECT_EQ(simulation.engine.stats().num_steps, num_steps);
}

TEST(Engine, KnownEndsWasteNoRow) {
  Simulation simulation;
  simulation.submit(make_request(8, 10, 1));
  simulation.run();
  EXPECT_EQ(simulation.engine.stats().num_steps, 10U);  // the prompt's step gives the first token
}

}  // namespace
}  // namespace thalweg::simulator
