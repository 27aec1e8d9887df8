// A whole step through a real model: THALWEG_BENCH_MODEL names the file, THALWEG_BENCH_THREADS how many threads (1).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/thread_pool.h"
#include "models/registry.h"

namespace thalweg::models {
namespace {

int num_threads() {
  const char* threads = std::getenv("THALWEG_BENCH_THREADS");
  return threads == nullptr ? 1 : std::max(1, std::atoi(threads));
}

/// A step of `num_rows` sequences, each with `num_new` tokens after `context_len - num_new` cached ones.
class Step {
 public:
  Step(Model& model, std::int32_t num_rows, std::int32_t num_new, std::int32_t context_len)
      : blocks_per_row_((context_len + model.info().cache.block_size - 1) / model.info().cache.block_size),
        blocks_(static_cast<std::size_t>(num_rows * blocks_per_row_ * model.info().cache.bytes_per_block)),
        context_lens_(static_cast<std::size_t>(num_rows), context_len),
        slots_(static_cast<std::size_t>(num_rows)),
        block_tables_(static_cast<std::size_t>(num_rows * blocks_per_row_)),
        logits_(static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(model.info().vocab_size)) {
    std::iota(slots_.begin(), slots_.end(), 0);
    std::iota(block_tables_.begin(), block_tables_.end(), 0);
    cu_seqlens_.push_back(0);
    for (std::int32_t row = 0; row < num_rows; ++row) {
      for (std::int32_t i = 0; i < num_new; ++i) {
        token_ids_.push_back((row * 7919 + i * 104729 + 1000) % model.info().vocab_size);
        positions_.push_back(context_len - num_new + i);
      }
      cu_seqlens_.push_back(static_cast<std::int32_t>(token_ids_.size()));
      logit_tokens_.push_back(cu_seqlens_.back() - 1);
    }
  }

  void run(Model& model, device::Stream& stream) {
    const step::BatchView batch{.token_ids = token_ids_,
                                .positions = positions_,
                                .cu_seqlens = cu_seqlens_,
                                .context_lens = context_lens_,
                                .block_tables = block_tables_,
                                .max_blocks_per_row = blocks_per_row_,
                                .slots = slots_,
                                .logit_tokens = logit_tokens_};
    model.forward(stream, batch,
                  {.blocks = blocks_.data(), .num_blocks = static_cast<std::int64_t>(block_tables_.size())},
                  logits_.data());
    benchmark::DoNotOptimize(logits_.data());
  }

 private:
  std::int32_t blocks_per_row_;
  device::Buffer blocks_;
  std::vector<std::int32_t> token_ids_, positions_, cu_seqlens_, context_lens_, slots_, block_tables_, logit_tokens_;
  std::vector<float> logits_;
};

void forward(benchmark::State& state) {
  const char* path = std::getenv("THALWEG_BENCH_MODEL");
  if (path == nullptr) {
    state.SkipWithError("THALWEG_BENCH_MODEL is not set");
    return;
  }
  device::ThreadPool threads(num_threads());
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  const auto checkpoint = weights::Checkpoint::open(path);
  const auto model = checkpoint ? load_model(**checkpoint, stream, {})
                                : Result<std::unique_ptr<Model>>(std::unexpected(checkpoint.error()));
  if (!model) {
    state.SkipWithError(model.error().message.c_str());
    return;
  }
  const auto num_rows = static_cast<std::int32_t>(state.range(0));
  const auto num_new = static_cast<std::int32_t>(state.range(1));
  (*model)->reserve(num_rows * num_new);
  Step step(**model, num_rows, num_new, static_cast<std::int32_t>(state.range(2)));
  step.run(**model, stream);
  for (auto _ : state) step.run(**model, stream);
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(num_rows) * num_new, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(forward)
    ->ArgNames({"rows", "new", "context"})
    ->Args({1, 1, 64})      // decode, one stream
    ->Args({1, 1, 1024})    // decode, one long stream
    ->Args({8, 1, 320})     // decode, 8 streams
    ->Args({32, 1, 320})    // decode, 32 streams
    ->Args({1, 512, 512})   // a prompt
    ->Args({1, 512, 4096})  // the last chunk of a long prompt
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace thalweg::models
