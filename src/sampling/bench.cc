// The cost of one row, for vocabularies from SmolLM2's to Gemma's.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "sampling/sequence_sampler.h"

namespace thalweg::sampling {
namespace {

/// A peaked row as a trained model answers, or a flat one.
std::vector<float> make_row(std::int64_t n, bool peaked) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, peaked ? 2.0F : 0.5F);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) x = normal(random);
  for (int i = 0; peaked && i < 20; ++i) row[random() % row.size()] = 12.0F + static_cast<float>(i) * 0.3F;
  return row;
}

void draw_row(benchmark::State& state, const SamplingParams& params, bool peaked = true) {
  const std::vector<float> raw = make_row(state.range(0), peaked);
  std::vector<float> row = raw;
  std::vector<std::int32_t> tokens(1000);
  std::mt19937 random(2);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % raw.size());
  const SequenceSampler sampler(std::make_shared<SamplingParams>(params), 1, static_cast<std::int32_t>(raw.size()), {},
                                tokens, 500);
  const RowLoops& loops = row_loops(device::detect_cpu_level());
  RowScratch scratch;
  TokenLogprobs logprobs;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.draw(loops, row, tokens, scratch, &logprobs));
  }
}

#define THALWEG_ROW_BENCH(name, ...) \
  BENCHMARK_CAPTURE(draw_row, name, __VA_ARGS__)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond)

THALWEG_ROW_BENCH(greedy, SamplingParams{.temperature = 0.0F});
THALWEG_ROW_BENCH(greedy_logprobs_5, SamplingParams{.temperature = 0.0F, .num_logprobs = 5});
THALWEG_ROW_BENCH(temperature, SamplingParams{});
THALWEG_ROW_BENCH(top_k_50, SamplingParams{.top_k = 50});
THALWEG_ROW_BENCH(top_p, SamplingParams{.top_p = 0.95F});
THALWEG_ROW_BENCH(top_p_flat, SamplingParams{.top_p = 0.95F}, false);
THALWEG_ROW_BENCH(min_p, SamplingParams{.min_p = 0.05F});
THALWEG_ROW_BENCH(penalties, SamplingParams{.top_p = 0.9F, .repetition_penalty = 1.0F + 1e-7F});
THALWEG_ROW_BENCH(everything,
                  SamplingParams{.top_k = 50, .top_p = 0.9F, .repetition_penalty = 1.0F + 1e-7F, .num_logprobs = 5});

}  // namespace
}  // namespace thalweg::sampling
