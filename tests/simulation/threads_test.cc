// The engine on its own thread, in real time, with many others around it. Meant for the tsan preset.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "simulation.h"

namespace thalweg::simulator {
namespace {

void sleep_until(const Clock& clock, double time_s) {
  const double left_s = time_s - clock.now();
  if (left_s > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(left_s));
}

FakeExecutorOptions quick_executor() {
  FakeExecutorOptions options = small_executor();
  options.cost = {5e-5, 1e-6, 0.0};
  return options;
}

std::unique_ptr<Engine> make_real_engine(const FakeExecutorOptions& executor, const Clock& clock,
                                         const EngineOptions& options = {}) {
  ModelDescription model;
  model.vocab_size = executor.model.vocab_size;
  model.eos_token_ids = executor.model.eos_token_ids;
  return engine::make_engine(
      std::make_unique<FakeExecutor>(executor, clock, [&clock](double time_s) { sleep_until(clock, time_s); }), model,
      options, clock);
}

/// Counts events from the engine thread for readers on others.
class CountingSink final : public EventSink {
 public:
  void deliver(std::vector<Event> events) override {
    for (const Event& event : events) {
      if (std::holds_alternative<FinishEvent>(event)) num_finished_.fetch_add(1);
    }
    num_finished_.notify_all();
  }
  void wait_for(int num_finished) const {
    for (int seen = num_finished_.load(); seen < num_finished; seen = num_finished_.load()) num_finished_.wait(seen);
  }
  int num_finished() const { return num_finished_.load(); }

 private:
  std::atomic<int> num_finished_ = 0;
};

TEST(Threads, ManySubmittersAndStormsOfCancels) {
  const SteadyClock clock;
  const auto engine = make_real_engine(quick_executor(), clock);
  constexpr int kNumThreads = 6;
  constexpr int kNumRequests = 60;
  std::vector<std::thread> threads;
  std::atomic<int> num_sequences = 0;
  const auto sink = std::make_shared<CountingSink>();
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<RequestId> ids;
      for (int i = 0; i < kNumRequests; ++i) {
        GenerateRequest request = make_request(1 + static_cast<std::int32_t>(random() % 60),
                                               1 + static_cast<std::int32_t>(random() % 40), random() % 10);
        request.num_sequences = 1 + static_cast<std::int32_t>(random() % 3);
        const Result<RequestId> id = engine->submit(request, sink);
        ASSERT_TRUE(id);
        ids.push_back(*id);
        num_sequences += request.num_sequences;
        if (random() % 3 == 0) engine->cancel(ids[random() % ids.size()]);
        if (random() % 5 == 0) engine->cancel_sequence(ids[random() % ids.size()], 1);
        if (random() % 10 == 0) (void)engine->reset_prefix_cache();
        const EngineStats stats = engine->stats();
        ASSERT_LE(stats.num_blocks_used, stats.num_blocks_total);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  sink->wait_for(num_sequences.load());
  const Status reset = engine->reset_prefix_cache();
  EXPECT_TRUE(reset) << reset.error().message;
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
  EXPECT_EQ(stats.num_blocks_used, 0);
  EXPECT_EQ(stats.num_requests_admitted, static_cast<std::uint64_t>(kNumThreads * kNumRequests));
  engine->close(0.0);
  EXPECT_EQ(sink->num_finished(), num_sequences.load());
}

TEST(Threads, ResetIsRefusedWhileSequencesRun) {
  const SteadyClock clock;
  FakeExecutorOptions executor = quick_executor();
  executor.cost.base_s = 0.002;
  const auto engine = make_real_engine(executor, clock);
  const auto sink = std::make_shared<CountingSink>();
  const Result<RequestId> id = engine->submit(make_request(5, 240, 1), sink);
  ASSERT_TRUE(id);
  while (engine->stats().num_running == 0) std::this_thread::yield();
  const Status refused = engine->reset_prefix_cache();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  engine->cancel(*id);
  sink->wait_for(1);
  EXPECT_TRUE(engine->reset_prefix_cache());
}

TEST(Threads, AnIdleEngineSleeps) {
  const SteadyClock clock;
  const auto engine = make_real_engine(quick_executor(), clock);
  const auto sink = std::make_shared<CountingSink>();
  ASSERT_TRUE(engine->submit(make_request(5, 5, 1), sink));
  sink->wait_for(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // let it fall asleep
  const double before_s = engine->stats().last_progress_s;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(engine->stats().last_progress_s, before_s) << "it turned without work";
  ASSERT_TRUE(engine->submit(make_request(5, 5, 1), sink));
  sink->wait_for(2);
  EXPECT_GT(engine->stats().last_progress_s, before_s);
}

TEST(Threads, CloseFromSeveralThreadsAnswersEverybody) {
  const SteadyClock clock;
  FakeExecutorOptions executor = quick_executor();
  executor.cost.base_s = 0.001;
  const auto engine = make_real_engine(executor, clock);
  const auto sink = std::make_shared<CountingSink>();
  std::atomic<int> num_accepted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Result<RequestId> id = engine->submit(make_request(10, 100, static_cast<std::uint64_t>(t)), sink);
        if (id) {
          ++num_accepted;
        } else {
          EXPECT_EQ(id.error().code, ErrorCode::kUnavailable);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::thread patient([&] { engine->close(30.0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  engine->close(0.0);  // the second call ends the first one's patience
  patient.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sink->num_finished(), num_accepted.load());
  EXPECT_FALSE(engine->reset_prefix_cache());
  engine->cancel(RequestId{1});
}

TEST(Threads, GenerateAnswersInTheOrderAsked) {
  const SteadyClock clock;
  FakeExecutorOptions executor = quick_executor();
  executor.cost = {0.0, 0.0, 0.0};
  EngineOptions options;
  options.max_queued_requests = 10;  // far fewer than are asked for
  const auto engine = make_real_engine(executor, clock, options);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 700; ++i) {
    GenerateRequest request =
        make_request(5 + static_cast<std::int32_t>(i % 20), 1 + static_cast<std::int32_t>(i % 9), i);
    request.num_sequences = i % 50 == 0 ? 3 : 1;
    if (i % 7 == 0) request.sampling.num_logprobs = 0;
    requests.push_back(request);
  }
  requests[3].prompt_ids = {-1};
  requests[4].num_sequences = 1'000'000'000;
  std::size_t last_done = 0;
  const auto results = generate(*engine, requests, [&](std::size_t num_done) { last_done = num_done; });
  ASSERT_EQ(results.size(), requests.size());
  EXPECT_EQ(last_done, requests.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i == 3 || i == 4) {
      ASSERT_TRUE(results[i][0].finish.error);
      EXPECT_EQ(results[i][0].finish.error->code, ErrorCode::kInvalidArgument);
      continue;
    }
    ASSERT_EQ(results[i].size(), static_cast<std::size_t>(requests[i].num_sequences));
    for (std::size_t j = 0; j < results[i].size(); ++j) {
      const FakeOutput expected = expected_output(executor.model, requests[i], static_cast<std::int32_t>(j));
      EXPECT_EQ(results[i][j].token_ids, expected.token_ids);
      EXPECT_EQ(results[i][j].logprobs.size(), i % 7 == 0 ? expected.token_ids.size() : 0U);
    }
  }
}

}  // namespace
}  // namespace thalweg::simulator
