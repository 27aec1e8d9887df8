// Tokens of a decode step and of a prefill chunk, 9 heads of 64.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/rope/rope.h"

namespace thalweg::kernels::rotation {
namespace {

constexpr std::int32_t kHeads = 9;
constexpr std::int32_t kHeadDim = 64;

void table(benchmark::State& state) {
  device::ThreadPool threads(2);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  std::vector<std::int32_t> positions(state.range(0));
  std::iota(positions.begin(), positions.end(), 1000);
  std::vector<float> cos_sin(positions.size() * kHeadDim);
  const RopeFrequencies frequencies = rope_default(kHeadDim, 1e5);
  for (auto _ : state) rope_table(stream, frequencies, positions, cos_sin.data());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(table)->Name("rope_table")->Arg(1)->Arg(32)->Arg(512)->UseRealTime();

void rotate(benchmark::State& state) {
  device::ThreadPool threads(2);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  const std::int64_t num_tokens = state.range(0);
  std::vector<float> x(num_tokens * kHeads * kHeadDim, 0.5F);
  std::vector<float> cos_sin;
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    cos_sin.insert(cos_sin.end(), kHeadDim / 2, 0.6F);
    cos_sin.insert(cos_sin.end(), kHeadDim / 2, 0.8F);
  }
  for (auto _ : state) {
    rope(stream, {.x = x.data(),
                  .x_stride = kHeads * kHeadDim,
                  .num_tokens = num_tokens,
                  .num_heads = kHeads,
                  .head_dim = kHeadDim,
                  .rope_dim = kHeadDim,
                  .pairing = state.range(1) == 0 ? RopePairing::kHalves : RopePairing::kInterleaved,
                  .cos_sin = cos_sin.data()});
  }
  state.SetBytesProcessed(state.iterations() * num_tokens * kHeads * kHeadDim * 8);
}
BENCHMARK(rotate)->Name("rope")->ArgsProduct({{1, 32, 512}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace thalweg::kernels::rotation
