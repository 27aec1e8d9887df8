#include "worker/cpu_worker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "device/thread_pool.h"
#include "worker/fake_model.h"
#include "worker/make_worker.h"
#include "worker/step_driver.h"

namespace thalweg::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

/// A worker over a fake model, with its threads.
struct Bench {
  explicit Bench(FakeModelOptions model = {}, WorkerOptions options = {}, int num_threads = 2)
      : threads(num_threads, /*pin=*/false) {
    if (options.max_num_seqs == 0) options.max_num_seqs = 64;
    if (options.kv_cache_bytes == 0) options.kv_cache_bytes = 1 << 20;
    auto made = make_cpu_worker(std::make_unique<FakeModel>(model),
                                {.cpu_level = device::detect_cpu_level(), .threads = &threads}, options);
    CHECK(made.has_value());
    worker = std::move(*made);
  }

  std::vector<DrivenOutput> run(const std::vector<DrivenRequest>& requests, const DriverOptions& options = {}) {
    return StepDriver(*worker, options).run(requests);
  }

  device::ThreadPool threads;
  std::unique_ptr<step::StepExecutor> worker;
};

/// Requests of every kind: greedy, filtered, penalised, biased, with and without logprobs.
std::vector<DrivenRequest> mixed_requests(int count, std::int32_t vocab_size, unsigned seed = 5) {
  std::mt19937 random(seed);
  std::vector<DrivenRequest> requests;
  for (int i = 0; i < count; ++i) {
    DrivenRequest request;
    request.prompt.resize(1 + random() % 40);
    for (auto& token : request.prompt) token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab_size));
    request.seed = random();
    request.max_tokens = 1 + static_cast<std::int32_t>(random() % 40);
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 3 == 0 ? 0.0F : 0.6F + 0.1F * static_cast<float>(i % 7);
    if (i % 4 == 1) sampling.top_k = 5;
    if (i % 5 == 2) sampling.top_p = 0.8F;
    if (i % 7 == 3) sampling.min_p = 0.1F;
    if (i % 6 == 4) sampling.repetition_penalty = 1.3F;
    if (i % 8 == 5) sampling.presence_penalty = 0.7F, sampling.frequency_penalty = 0.2F;
    if (i % 9 == 6) sampling.logit_bias = {{3, 4.0F}};
    if (i % 10 == 7) sampling.bad_words = {{3}, {1, 2}};
    if (i % 2 == 0) sampling.num_logprobs = i % 5;
    if (i % 11 == 0) request.num_prompt_logprobs = 3;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<DrivenOutput> one_by_one(const std::vector<DrivenRequest>& requests, FakeModelOptions model = {}) {
  Bench alone(model, {.max_num_seqs = 1}, 1);
  std::vector<DrivenOutput> outputs;
  for (const DrivenRequest& request : requests) outputs.push_back(alone.run({request})[0]);
  return outputs;
}

void expect_all_equal(const std::vector<DrivenOutput>& a, const std::vector<DrivenOutput>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(a[i], b[i]);
  }
}

int sum(const std::vector<DrivenOutput>& outputs, std::int32_t DrivenOutput::*count) {
  int total = 0;
  for (const DrivenOutput& output : outputs) total += output.*count;
  return total;
}

TEST(CpuWorker, OutputDoesNotDependOnTheBatch) {
  const auto requests = mixed_requests(80, 101);
  const auto alone = one_by_one(requests);
  for (const DrivenOutput& output : alone) EXPECT_FALSE(output.failed);
  expect_all_equal(Bench().run(requests), alone);
  expect_all_equal(Bench({}, {.max_num_batched_tokens = 64}).run(requests, {.chunk = 3, .scramble = 7}), alone);
  expect_all_equal(Bench({}, {.max_num_seqs = 5}, 4).run(requests, {.chunk = 16}), alone);
}

TEST(CpuWorker, OutputDoesNotDependOnOverlap) {
  const auto requests = mixed_requests(40, 101);
  const auto alone = one_by_one(requests);
  expect_all_equal(Bench().run(requests, {.in_flight = 2}), alone);
  expect_all_equal(Bench({}, {.max_num_seqs = 7, .max_num_batched_tokens = 32}).run(requests, {.in_flight = 2}), alone);
}

TEST(CpuWorker, OutputDoesNotDependOnPreemption) {
  const auto requests = mixed_requests(40, 101);
  const auto alone = one_by_one(requests);
  for (const unsigned scramble : {1U, 2U, 3U}) {
    expect_all_equal(Bench({}, {.max_num_seqs = 8})
                         .run(requests, {.chunk = 10, .in_flight = 2, .preempt_every = 5, .scramble = scramble}),
                     alone);
  }
}

TEST(CpuWorker, OutputDoesNotDependOnPrefixHits) {
  for (const std::int32_t replay_tokens : {0, 5, 9, 100}) {
    SCOPED_TRACE(replay_tokens);
    Bench bench({.window = replay_tokens > 0 ? 6 : 0, .replay_tokens = replay_tokens});
    DrivenRequest request{.prompt = Tokens(30, 4), .seed = 77, .max_tokens = 20};
    for (std::size_t i = 0; i < request.prompt.size(); ++i) request.prompt[i] = static_cast<std::int32_t>(i * i % 101);
    request.sampling.num_logprobs = 2;
    StepDriver first(*bench.worker, {});
    const DrivenOutput full = first.run({request})[0];

    StepDriver second(*bench.worker, {.chunk = 8, .scramble = 9});
    second.keep(full.blocks);
    request.hit_blocks.assign(full.blocks.begin(), full.blocks.begin() + 28 / FakeModel::kBlockSize);
    expect_equal(second.run({request})[0], full);
  }
}

TEST(CpuWorker, EachSequenceHasItsState) {
  const auto requests = mixed_requests(40, 101);
  const auto alone = one_by_one(requests);
  const FakeModelOptions model{.window = 6, .max_draft_tokens = 3, .replay_tokens = 8};
  const WorkerOptions options{.max_num_seqs = 8, .num_draft_tokens = 3};
  for (const unsigned scramble : {1U, 2U}) {
    Bench bench(model, options);
    expect_all_equal(
        bench.run(requests, {.chunk = 10, .in_flight = 2, .max_drafts = 3, .preempt_every = 5, .scramble = scramble}),
        alone);
  }
}

TEST(CpuWorker, TheTailOfWhatASlotWasStartedWithIsComputedInFull) {
  std::vector<std::pair<std::int32_t, std::int32_t>> rows;  // first position, full_from
  FakeModelOptions model{.window = 4, .replay_tokens = 4, .prefill_tail_tokens = 10};
  model.on_forward = [&](const step::BatchView& batch) {
    for (std::size_t row = 0; row < batch.full_from.size(); ++row) {
      rows.emplace_back(batch.positions[static_cast<std::size_t>(batch.cu_seqlens[row])], batch.full_from[row]);
    }
  };
  Bench bench(model);
  DrivenRequest request{.prompt = Tokens(30, 4), .max_tokens = 3};
  using Rows = decltype(rows);
  bench.run({request}, {.chunk = 16});
  EXPECT_EQ(rows, (Rows{{0, 20}, {16, 20}, {30, 0}, {31, 0}}));
  rows.clear();
  request.num_prompt_logprobs = 0;
  bench.run({request});
  EXPECT_EQ(rows, (Rows{{0, 0}, {29, 0}, {30, 0}, {31, 0}})) << "logprobs of the prompt need all of it";
  rows.clear();
  bench.run({{.prompt = Tokens(10, 4), .max_tokens = 1}});
  EXPECT_EQ(rows, (Rows{{0, 0}}));
}

TEST(CpuWorker, OutputDoesNotDependOnSpeculation) {
  // Logits that depend on few last tokens make texts repeat, so that many drafts hold.
  for (const std::int32_t order : {1, 2, 0}) {
    const FakeModelOptions model{.vocab_size = 40, .order = order};
    auto requests = mixed_requests(40, 40);
    for (auto& request : requests) request.max_tokens *= 3;
    const auto alone = one_by_one(requests, model);
    for (const int in_flight : {1, 2}) {
      Bench bench(model, {.max_num_batched_tokens = 200, .num_draft_tokens = 5});
      const auto drafted = bench.run(requests, {.in_flight = in_flight, .max_drafts = 5, .preempt_every = 9});
      expect_all_equal(drafted, alone);
      EXPECT_GT(sum(drafted, &DrivenOutput::num_draft_tokens), 0);
      if (order != 1) continue;
      const auto undrafted = bench.run(requests, {.in_flight = in_flight, .preempt_every = 9});
      EXPECT_LT(sum(drafted, &DrivenOutput::num_steps), 0.85 * sum(undrafted, &DrivenOutput::num_steps));
    }
  }
}

TEST(CpuWorker, PromptLogprobsComeInBoundedPieces) {
  std::atomic<std::int32_t> largest = 0;
  const std::int32_t vocab_size = 80000;  // pieces of about 100 tokens
  FakeModelOptions model{.vocab_size = vocab_size, .max_position = 1000, .order = 3, .largest_logits = &largest};
  DrivenRequest request{.prompt = Tokens(301), .max_tokens = 2, .num_prompt_logprobs = 1};
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    request.prompt[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocab_size));
  }
  request.sampling.temperature = 0.0F;
  request.sampling.num_logprobs = 1;
  const WorkerOptions options{.max_num_seqs = 4, .max_num_batched_tokens = 512, .kv_cache_bytes = 1 << 20};
  const auto plan = plan_memory(FakeModel(model).info(), options, std::int64_t{1} << 40);
  ASSERT_TRUE(plan.has_value());
  EXPECT_LT(plan->logit_bytes, 64 << 20);

  const DrivenOutput whole = Bench(model, options).run({request})[0];
  ASSERT_EQ(whole.prompt_logprobs.size(), 300U);
  EXPECT_EQ(largest, plan->prompt_logprob_tokens);
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(whole.prompt_logprobs[i].chosen.token_id, request.prompt[i + 1]);
    ASSERT_EQ(whole.prompt_logprobs[i].top.size(), 1U);
    EXPECT_GE(whole.prompt_logprobs[i].top[0].logprob, whole.prompt_logprobs[i].chosen.logprob);
  }
  expect_equal(Bench(model, options).run({request}, {.chunk = 37})[0], whole);

  // What a prompt token was worth is what it would have been worth as an output.
  DrivenRequest shorter = request;
  shorter.prompt.resize(200);
  shorter.max_tokens = 1;
  const DrivenOutput output = Bench(model, options).run({shorter})[0];
  EXPECT_TRUE(same_logprob(output.logprobs[0].top[0], whole.prompt_logprobs[199].top[0]));
}

TEST(CpuWorker, NanEndsOneSequenceAndNoOther) {
  const auto requests = mixed_requests(30, 101);
  const auto healthy = one_by_one(requests);
  const FakeModelOptions model{.nan_after = 50};
  const auto outputs = Bench(model, {.num_draft_tokens = 3}).run(requests, {.in_flight = 2, .max_drafts = 3});
  int num_failed = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const auto& prompt = requests[i].prompt;
    auto computed = healthy[i].token_ids;  // all but the last drawn token were computed
    computed.pop_back();
    const bool prompt_counts = requests[i].num_prompt_logprobs >= 0 && prompt.size() > 1 &&
                               std::ranges::count(prompt.begin(), prompt.end() - 1, 50) > 0;
    const bool fails = prompt_counts || prompt.back() == 50 || std::ranges::count(computed, 50) > 0;
    EXPECT_EQ(outputs[i].failed, fails);
    num_failed += fails;
    if (!fails) {
      expect_equal(outputs[i], healthy[i]);
    } else {
      const auto& begin = outputs[i].token_ids;
      ASSERT_LE(begin.size(), healthy[i].token_ids.size());
      EXPECT_TRUE(std::equal(begin.begin(), begin.end(), healthy[i].token_ids.begin()))
          << "what was drawn before stands";
    }
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_LT(num_failed, 30);
}

step::StepPlan first_plan(std::uint64_t step_id, const Tokens& prompt, std::vector<step::BlockId> blocks,
                          std::int32_t num_known_tokens) {
  step::StepPlan plan{.step_id = step_id};
  plan.starts.push_back({.token_ids = std::make_shared<Tokens>(prompt),
                         .num_prompt_tokens = static_cast<std::int32_t>(prompt.size()),
                         .sampling = std::make_shared<SamplingParams>()});
  plan.block_ids = std::move(blocks);
  plan.rows.push_back({.num_known_tokens = num_known_tokens,
                       .num_new_blocks = static_cast<std::int32_t>(plan.block_ids.size()),
                       .samples = num_known_tokens == static_cast<std::int32_t>(prompt.size())});
  return plan;
}

step::StepPlan continue_plan(std::uint64_t step_id) {
  step::StepPlan plan{.step_id = step_id};
  plan.rows.push_back({.samples = true});
  return plan;
}

TEST(CpuWorker, MemoryThatRunsOutInAStepIsFatalButNoCrash) {
  Bench bench(FakeModelOptions{.bad_alloc_at = 13});
  bench.worker->submit(first_plan(1, {1, 2}, {0}, 2));
  step::StepResult result = bench.worker->collect();
  EXPECT_TRUE(result.fatal.empty());
  EXPECT_EQ(result.rows[0].num_tokens, 1);

  step::StepPlan plan = first_plan(2, {12, 13}, {1}, 2);
  plan.released_slots = {0};
  bench.worker->submit(plan);
  bench.worker->submit(continue_plan(3));
  for (const std::uint64_t step_id : {2, 3}) {
    result = bench.worker->collect();
    EXPECT_EQ(result.step_id, step_id);
    ASSERT_EQ(result.fatal.size(), 1U);
    EXPECT_EQ(result.fatal[0].code, ErrorCode::kUnavailable);
    EXPECT_EQ(result.rows.size(), 1U);
    EXPECT_TRUE(result.token_ids.empty());
  }
}

TEST(CpuWorker, ARowWithoutRoomFails) {
  Bench bench({}, {.num_draft_tokens = 4});
  bench.worker->submit(first_plan(1, {1, 1, 1}, {5}, 3));  // one place is left in the block
  EXPECT_EQ(bench.worker->collect().rows[0].num_tokens, 1);
  step::StepPlan plan = continue_plan(2);
  plan.rows[0].max_draft_tokens = 4;
  bench.worker->submit(plan);
  step::StepResult result = bench.worker->collect();
  EXPECT_EQ(result.rows[0].num_tokens, 1);
  EXPECT_EQ(result.rows[0].num_draft_tokens, 0) << "drafts must fit the blocks";
  bench.worker->submit(continue_plan(3));
  result = bench.worker->collect();
  EXPECT_TRUE(result.rows[0].failed);
  EXPECT_EQ(result.rows[0].num_tokens, 0);
  EXPECT_EQ(result.num_computed_tokens, 0);
}

TEST(CpuWorker, AReleasedSlotForgetsItsSequence) {
  Bench bench({.window = 8, .max_draft_tokens = 4, .replay_tokens = 7}, {.num_draft_tokens = 4});
  bench.worker->submit(first_plan(1, {9, 8, 7, 9, 8}, {0, 1}, 5));
  bench.worker->collect();
  // The same slot, released and started in one plan.
  step::StepPlan plan = first_plan(2, {1, 2}, {2}, 2);
  plan.released_slots = {0};
  bench.worker->submit(plan);
  const Tokens token = bench.worker->collect().token_ids;
  Bench fresh;
  fresh.worker->submit(first_plan(1, {1, 2}, {2}, 2));
  EXPECT_EQ(fresh.worker->collect().token_ids, token);

  step::StepPlan release{.step_id = 3};
  release.released_slots = {0};
  bench.worker->submit(release);
  EXPECT_TRUE(bench.worker->collect().rows.empty());
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t num_pages = 0;
  std::int64_t num_resident_pages = 0;
  statm >> num_pages >> num_resident_pages;
  return num_resident_pages * sysconf(_SC_PAGESIZE);
}

TEST(CpuWorker, StateTakesMemoryOfUsedSlotsAlone) {
  constexpr std::int64_t kStateBytes = 8 << 20;
  Bench bench({.window = kStateBytes / 8, .replay_tokens = kStateBytes / 8}, {.max_num_seqs = 64});
  const std::int64_t before = resident_bytes();
  bench.worker->submit(first_plan(1, {1, 2}, {0}, 2));
  EXPECT_EQ(bench.worker->collect().rows[0].num_tokens, 1);
  // Far below 64 slots; the thread sanitizer keeps four bytes and more for each that was written.
  EXPECT_LT(resident_bytes() - before, 16 * kStateBytes);
}

TEST(CpuWorker, ClosesWithPlansInFlight) {
  for (int round = 0; round < 20; ++round) {
    Bench bench;
    bench.worker->submit(first_plan(1, {1, 2}, {0}, 2));
    bench.worker->submit(continue_plan(2));
  }
}

}  // namespace
}  // namespace thalweg::worker
