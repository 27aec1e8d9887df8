// Host time of one decode step: it grows with the streams that run, not with the length of their
// prompts. The fake executor's own work is included.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "engine/engine_loop.h"
#include "simulator/fake_executor.h"
#include "simulator/virtual_clock.h"

namespace thalweg::simulator {
namespace {

class DroppingSink final : public EventSink {
 public:
  void deliver(std::vector<Event> events) override { benchmark::DoNotOptimize(events.data()); }
};

FakeExecutorOptions large_executor(std::int32_t num_streams) {
  FakeExecutorOptions options;
  options.verify_cache = false;
  options.limits.max_model_len = 1 << 20;
  options.limits.max_slots = num_streams;
  options.limits.max_num_batched_tokens = 1 << 20;
  options.limits.num_blocks = 1 << 17;
  options.limits.cache.block_size = 16;
  return options;
}

void decode_turn(benchmark::State& state) {
  const auto num_streams = static_cast<std::int32_t>(state.range(0));
  const auto num_prompt_tokens = static_cast<std::size_t>(state.range(1));
  VirtualClock clock;
  const FakeExecutorOptions executor = large_executor(num_streams);
  EngineOptions options;
  options.target_step_s = 1e6;
  engine::EngineLoop engine(
      std::make_unique<FakeExecutor>(executor, clock, [&](double time_s) { clock.advance_to(time_s); }),
      ModelDescription(), options, clock);
  const auto sink = std::make_shared<DroppingSink>();
  std::mt19937 random(1);
  for (std::int32_t i = 0; i < num_streams; ++i) {
    GenerateRequest request;
    request.prompt_ids.resize(num_prompt_tokens);
    for (std::int32_t& token_id : request.prompt_ids) token_id = static_cast<std::int32_t>(random() % 1000);
    request.max_tokens = 1 << 15;
    if (!engine.submit(std::move(request), sink)) state.SkipWithError("refused");
  }
  for (int i = 0; i < 4; ++i) engine.turn();
  for (auto _ : state) engine.turn();
}

BENCHMARK(decode_turn)->ArgsProduct({{1, 8, 32, 256}, {16, 4096}})->Iterations(3000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace thalweg::simulator
