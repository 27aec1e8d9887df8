// Opening a real file and walking its vocabulary and its pages, from the folder in THALWEG_TEST_ASSETS.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace thalweg::weights {
namespace {

std::string model_path() {
  const char* assets = std::getenv("THALWEG_TEST_ASSETS");
  return assets == nullptr ? "" : std::string(assets) + "/SmolLM2-135M-Instruct.Q4_1.gguf";
}

Result<std::unique_ptr<Checkpoint>> open(benchmark::State& state) {
  Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(model_path());
  if (!checkpoint) state.SkipWithError(("needs THALWEG_TEST_ASSETS: " + checkpoint.error().message).c_str());
  return checkpoint;
}

void open_checkpoint(benchmark::State& state) {
  for (auto _ : state) {
    if (!open(state)) return;
  }
}
BENCHMARK(open_checkpoint)->Unit(benchmark::kMillisecond);

void read_vocabulary(benchmark::State& state) {
  const auto checkpoint = open(state);
  if (!checkpoint) return;
  for (auto _ : state) {
    const GgufMetadata& metadata = *(*checkpoint)->gguf_metadata();
    benchmark::DoNotOptimize(metadata.string_array("tokenizer.ggml.tokens"));
    benchmark::DoNotOptimize(metadata.string_array("tokenizer.ggml.merges"));
    benchmark::DoNotOptimize(metadata.int_array("tokenizer.ggml.token_type"));
  }
}
BENCHMARK(read_vocabulary)->Unit(benchmark::kMillisecond);

// What loading pays for the mapping itself: a fault per 64 KiB and dropping the pages again.
void touch_and_release(benchmark::State& state) {
  const auto checkpoint = open(state);
  if (!checkpoint) return;
  for (auto _ : state) {
    std::size_t sum = 0;
    for (const TensorInfo& tensor : (*checkpoint)->tensors()) {
      const std::span<const std::byte> bytes = (*checkpoint)->bytes(tensor);
      for (std::size_t i = 0; i < bytes.size(); i += 4096) sum += static_cast<std::size_t>(bytes[i]);
      (*checkpoint)->release(tensor);
    }
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(touch_and_release)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace thalweg::weights
