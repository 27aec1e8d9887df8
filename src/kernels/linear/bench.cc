// Products of the model's shapes. Counters: GB/s of packed weights read, GMAC/s done.
//
// "read_roof" is what the same threads reach when they only read; compare GB/s of few tokens with it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/linear/cases.h"
#include "kernels/linear/linear.h"

namespace thalweg::kernels {
namespace {

// Larger than the caches of common processors, so that few tokens meet weights in memory as decoding does.
constexpr std::int64_t kWorkingSetBytes = 96 << 20;

device::ThreadPool& threads() {
  static device::ThreadPool pool(device::num_usable_cpus());
  return pool;
}

device::Stream stream() { return {.cpu_level = device::detect_cpu_level(), .threads = &threads()}; }

LinearWeight packed(const ModelShape& shape, std::uint32_t seed) {
  const RandomMatrix matrix = random_matrix(shape.dtype, shape.num_rows, shape.num_cols, seed);
  device::Stream on = stream();
  Result<LinearWeight> weight = LinearWeight::pack(on, {&matrix.stored, 1});
  CHECK(weight.has_value());
  return std::move(*weight);
}

void product(benchmark::State& state, ModelShape shape, std::int64_t num_tokens) {
  std::vector<LinearWeight> weights;
  weights.push_back(packed(shape, 1));
  const auto bytes = static_cast<std::int64_t>(weights[0].num_bytes());
  while (static_cast<std::int64_t>(weights.size()) * bytes < kWorkingSetBytes) weights.push_back(packed(shape, 1));
  const std::vector<float> x = random_activations(num_tokens * shape.num_cols, 2);
  std::vector<float> out(static_cast<std::size_t>(num_tokens * shape.num_rows));
  device::Stream on = stream();
  std::size_t next = 0;
  for (auto _ : state) {
    linear(on, {.x = x.data(),
                .x_stride = shape.num_cols,
                .num_tokens = num_tokens,
                .weight = &weights[next],
                .out = out.data(),
                .out_stride = shape.num_rows,
                .epilogue = shape.epilogue});
    next = (next + 1) % weights.size();
  }
  const auto rate = [](double per_iteration) {
    return benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GB/s"] = rate(static_cast<double>(bytes));
  state.counters["GMAC/s"] = rate(static_cast<double>(shape.num_rows * shape.num_cols * num_tokens));
}

void read_roof(benchmark::State& state) {
  device::Buffer memory(static_cast<std::size_t>(kWorkingSetBytes));
  std::fill_n(memory.as<std::uint64_t>(), memory.size() / 8, 1);
  constexpr std::int64_t kChunk = 64 << 10;
  const std::int64_t num_chunks = kWorkingSetBytes / kChunk;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(num_chunks));
  for (auto _ : state) {
    threads().parallel_for(num_chunks, [&](std::int64_t task, int) {
      const std::uint64_t* from = memory.as<std::uint64_t>() + task * kChunk / 8;
      std::uint64_t sum[8] = {};
      for (std::int64_t i = 0; i < kChunk / 8; i += 8) {
        for (int lane = 0; lane < 8; ++lane) sum[lane] |= from[i + lane];
      }
      sums[static_cast<std::size_t>(task)] = std::accumulate(sum, sum + 8, std::uint64_t{0});
    });
    benchmark::DoNotOptimize(sums.data());
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(kWorkingSetBytes) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void empty_job(benchmark::State& state) {
  for (auto _ : state) threads().parallel_for(threads().num_threads(), [](std::int64_t, int) {});
}

void pack_weights(benchmark::State& state, ModelShape shape) {
  const RandomMatrix matrix = random_matrix(shape.dtype, shape.num_rows, shape.num_cols, 1);
  device::Stream on = stream();
  for (auto _ : state) {
    Result<LinearWeight> weight = LinearWeight::pack(on, {&matrix.stored, 1});
    benchmark::DoNotOptimize(weight->num_bytes());
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(matrix.bytes.size()) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

const bool kRegistered = [] {
  benchmark::RegisterBenchmark("read_roof", read_roof)->UseRealTime();
  benchmark::RegisterBenchmark("empty_job", empty_job)->UseRealTime();
  for (const ModelShape& shape : kModelShapes) {
    benchmark::RegisterBenchmark((std::string("pack/") + shape.name).c_str(), pack_weights, shape)->UseRealTime();
    for (const std::int64_t num_tokens : {1, 8, 32, 512}) {
      const std::string name = std::string(shape.name) + "/" + std::to_string(num_tokens);
      benchmark::RegisterBenchmark(name.c_str(), product, shape, num_tokens)->UseRealTime();
    }
  }
  for (const device::DType dtype : kWeightTypes) {
    for (const std::int64_t num_tokens : {1, 64}) {
      const ModelShape shape{"", 2048, 2048, dtype, Epilogue::kStore};
      const std::string name = std::string(device::dtype_name(dtype)) + "/" + std::to_string(num_tokens);
      benchmark::RegisterBenchmark(name.c_str(), product, shape, num_tokens)->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace thalweg::kernels
