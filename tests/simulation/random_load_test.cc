// Seeded storms. After every turn all invariants hold; at the end every sequence has been answered
// once, with exactly the tokens that the model gives it alone.
#include <gtest/gtest.h>

#include <random>

#include "simulation.h"

namespace thalweg::simulator {
namespace {

constexpr std::int32_t kMaxQueuedRequests = 50;

/// A machine, an engine's options and a load, all drawn from one seed.
class RandomLoad {
 public:
  explicit RandomLoad(std::uint64_t seed) : random_(seed) {}

  FakeExecutorOptions draw_executor() {
    FakeExecutorOptions executor = small_executor();
    executor.random_seed = random_();
    executor.model.vocab_size = pick({40, 1000});  // with few words, end tokens come often
    executor.model.failure_share = chance(0.3) ? 0.01 : 0.0;
    step::ExecutorLimits& limits = executor.limits;
    limits.cache.block_size = pick({1, 4, 16});
    limits.cache.hit_granularity = pick({1, 1, 8, 24});
    limits.cache.replay_tokens = pick({0, 0, 5, 40});
    limits.max_model_len = 160;
    limits.num_blocks = (chance(0.5) ? 160 : 640) / limits.cache.block_size;
    limits.max_slots = pick({1, 3, 8});
    limits.max_num_batched_tokens = pick({8, 33, 200});
    limits.max_draft_tokens = pick({0, 0, 1, 4});
    executor.draft_hit_share = pick({0, 50, 90}) / 100.0;
    return executor;
  }

  EngineOptions draw_options() {
    EngineOptions options;
    options.enable_prefix_cache = chance(0.7);
    options.num_draft_tokens = 4;
    options.max_queued_requests = kMaxQueuedRequests;
    options.target_step_s = chance(0.5) ? 0.02 : 1.0;
    return options;
  }

  GenerateRequest draw_request(std::int32_t vocab_size) {
    GenerateRequest request;
    request.prompt_ids = make_prompt(pick({0, 7, 32, 33, 64}), random_() % 3, vocab_size);  // shared beginnings
    for (std::int32_t token_id : make_prompt(1 + below(40), random_() % 20, vocab_size)) {
      request.prompt_ids.push_back(token_id);
    }
    request.max_tokens = chance(0.05) ? 0 : 1 + below(160 - static_cast<std::int32_t>(request.prompt_ids.size()));
    if (chance(0.5)) request.max_tokens = std::min(request.max_tokens, 12);
    request.num_sequences = chance(0.2) ? 1 + below(6) : 1;
    request.priority = chance(0.3) ? below(3) - 1 : 0;
    if (chance(0.1)) request.timeout_s = 0.05 * (1 + below(20));
    if (chance(0.1)) request.cache_salt = "salt";
    if (chance(0.1)) request.num_prompt_logprobs = below(3);
    request.sampling.seed = random_() % 4;
    request.sampling.ignore_eos = chance(0.3);
    if (chance(0.2)) request.sampling.num_logprobs = below(3);
    if (chance(0.2)) request.sampling.stop_token_ids = {below(vocab_size), below(vocab_size)};
    if (chance(0.2)) request.sampling.min_tokens = below(request.max_tokens + 1);
    return request;
  }

  bool chance(double share) { return std::bernoulli_distribution(share)(random_); }
  std::int32_t below(std::int32_t end) { return std::uniform_int_distribution<std::int32_t>(0, end - 1)(random_); }
  std::int32_t pick(std::initializer_list<std::int32_t> values) {
    return *(values.begin() + below(static_cast<std::int32_t>(values.size())));
  }

 private:
  std::mt19937_64 random_;
};

struct LoadSums {
  std::uint64_t num_steps = 0;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_prefix_hit_tokens = 0;
  std::uint64_t num_hit_tokens_with_replay = 0;
  std::uint64_t num_accepted_tokens = 0;
  std::uint64_t num_cancelled = 0;
  std::uint64_t num_failed = 0;
  std::uint64_t num_finished = 0;
};

void run_load(std::uint64_t seed, LoadSums& sums) {
  RandomLoad load(seed);
  const FakeExecutorOptions executor = load.draw_executor();
  Simulation simulation(executor, load.draw_options());
  const std::int32_t num_requests = 10 + load.below(40);
  const double arrival_share = load.pick({10, 40, 100}) / 100.0;
  const double cancel_share = load.pick({0, 2, 10}) / 100.0;

  std::vector<RequestId> ids;
  std::size_t num_sequences = 0;
  for (int turn = 0; turn < 50'000; ++turn) {
    while (static_cast<std::int32_t>(ids.size()) < num_requests && load.chance(arrival_share)) {
      const GenerateRequest request = load.draw_request(executor.model.vocab_size);
      num_sequences += static_cast<std::size_t>(request.num_sequences);
      ids.push_back(simulation.submit(request));
    }
    if (!ids.empty() && load.chance(cancel_share)) {
      const RequestId id = ids[static_cast<std::size_t>(load.below(static_cast<std::int32_t>(ids.size())))];
      if (load.chance(0.5)) {
        simulation.engine.cancel(id);
      } else {
        simulation.engine.cancel_sequence(id, load.below(6));
      }
    }
    const bool more = simulation.turn();
    if (!more && static_cast<std::int32_t>(ids.size()) == num_requests) break;
  }
  ASSERT_EQ(simulation.sink->num_finished(), num_sequences) << "lost or starved";
  for (RequestId id : ids) {
    for (std::int32_t i = 0; i < simulation.request(id).num_sequences; ++i) simulation.expect_right_answer(id, i);
  }

  const EngineStats stats = simulation.engine.stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_blocks_used, 0);
  EXPECT_EQ(stats.num_requests_admitted, ids.size());
  GenerateRequest tiny;
  tiny.prompt_ids = {1};
  for (std::int32_t i = 0; i < kMaxQueuedRequests; ++i) {
    ASSERT_TRUE(simulation.engine.submit(tiny, simulation.sink)) << "a place in the queue was lost";
  }
  EXPECT_FALSE(simulation.engine.submit(tiny, simulation.sink));
  sums.num_steps += stats.num_steps;
  sums.num_preemptions += stats.num_preemptions;
  sums.num_prefix_hit_tokens += stats.num_prefix_hit_tokens;
  if (executor.limits.cache.replay_tokens > 0) sums.num_hit_tokens_with_replay += stats.num_prefix_hit_tokens;
  sums.num_accepted_tokens += stats.num_accepted_tokens;
  sums.num_cancelled += stats.num_sequences_cancelled;
  sums.num_failed += stats.num_sequences_failed;
  sums.num_finished += stats.num_sequences_finished;
}

TEST(RandomLoad, EverySequenceGetsItsOwnAnswerOnce) {
  LoadSums sums;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(run_load(seed, sums));
    ASSERT_FALSE(HasFailure());
  }
  // The load was one that tries everything.
  EXPECT_GT(sums.num_steps, 10'000U);
  EXPECT_GT(sums.num_preemptions, 100U);
  EXPECT_GT(sums.num_prefix_hit_tokens, 1'000U);
  EXPECT_GT(sums.num_hit_tokens_with_replay, 1'000U);
  EXPECT_GT(sums.num_accepted_tokens, 1'000U);
  EXPECT_GT(sums.num_cancelled, 100U);
  EXPECT_GT(sums.num_failed, 100U);
  EXPECT_GT(sums.num_finished, 1'000U);
  RecordProperty("steps", static_cast<int>(sums.num_steps));
  RecordProperty("preemptions", static_cast<int>(sums.num_preemptions));
}

TEST(RandomLoad, TheSameSeedGivesTheSameRun) {
  const auto trace = [](std::uint64_t seed) {
    RandomLoad load(seed);
    const FakeExecutorOptions executor = load.draw_executor();
    Simulation simulation(executor, load.draw_options());
    std::vector<RequestId> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(simulation.submit(load.draw_request(executor.model.vocab_size)));
    simulation.run();
    std::vector<double> times;
    for (RequestId id : ids) {
      for (double time_s : simulation.sequence(id).token_times_s) times.push_back(time_s);
    }
    return times;
  };
  EXPECT_EQ(trace(5), trace(5));
}

}  // namespace
}  // namespace thalweg::simulator
