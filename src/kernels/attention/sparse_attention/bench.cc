// Time of one layer's attention over a window of 128 and a list of 512, with its multiply-adds.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/attention/sparse_attention.h"

namespace thalweg::kernels {
namespace {

constexpr std::int32_t kHeads = 64;
constexpr std::int32_t kHeadDim = 512;
constexpr std::int32_t kWindow = 128;
constexpr std::int32_t kList = 512;
constexpr std::int32_t kEntries = 16 * 1024;
constexpr std::int32_t kEntriesPerBlock = 64;

device::Buffer random_rows(std::mt19937& random, QuantFormat format, std::int32_t num_rows) {
  const std::int64_t row_bytes = quant_row_bytes(format, kHeadDim);
  device::Buffer buffer(num_rows * row_bytes);
  std::normal_distribution<float> normal;
  std::vector<float> row(kHeadDim);
  for (std::int32_t i = 0; i < num_rows; ++i) {
    for (float& value : row) value = normal(random);
    quantize_row(format, row.data(), kHeadDim, buffer.data() + i * row_bytes);
  }
  return buffer;
}

void attend(benchmark::State& state, std::int32_t num_rows, std::int32_t num_tokens, int num_threads) {
  device::ThreadPool threads(num_threads);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  std::mt19937 random(1);
  const device::Buffer ring = random_rows(random, QuantFormat::kF8Block32, kWindow);
  const device::Buffer step = random_rows(random, QuantFormat::kF8Block32, num_rows * num_tokens);
  const device::Buffer cache = random_rows(random, QuantFormat::kF4Block16, kEntries);
  const std::int64_t entry_bytes = quant_row_bytes(QuantFormat::kF4Block16, kHeadDim);

  std::vector<std::int32_t> positions, cu_seqlens{0}, block_tables, lists;
  std::vector<std::int32_t> table(kEntries / kEntriesPerBlock);
  std::iota(table.begin(), table.end(), 0);
  for (std::int32_t row = 0; row < num_rows; ++row) {
    for (std::int32_t token = 0; token < num_tokens; ++token) positions.push_back(kEntries + token);
    cu_seqlens.push_back(static_cast<std::int32_t>(positions.size()));
    block_tables.insert(block_tables.end(), table.begin(), table.end());
  }
  for (std::size_t token = 0; token < positions.size(); ++token) {
    for (std::int32_t i = 0; i < kList; ++i) {
      lists.push_back(i * (kEntries / kList) + static_cast<std::int32_t>(random() % (kEntries / kList)));
    }
  }
  const std::vector<WindowRing> rings(num_rows, {ring.data(), 0});
  std::vector<float> q(positions.size() * kHeads * kHeadDim);
  std::vector<float> out(q.size());
  std::normal_distribution<float> normal;
  for (float& value : q) value = normal(random);
  const std::vector<float> sinks(kHeads, 1.0F);
  for (auto _ : state) {
    sparse_attention(stream, {.q = q.data(),
                              .num_heads = kHeads,
                              .head_dim = kHeadDim,
                              .scale = 1.0F / std::sqrt(static_cast<float>(kHeadDim)),
                              .sinks = sinks.data(),
                              .positions = positions,
                              .cu_seqlens = cu_seqlens,
                              .window = kWindow,
                              .rings = rings,
                              .ring_capacity = kWindow,
                              .step_rows = step.data(),
                              .entries = {cache.data(), kEntriesPerBlock * entry_bytes, kEntriesPerBlock, entry_bytes,
                                          QuantFormat::kF4Block16},
                              .block_tables = block_tables,
                              .max_blocks_per_row = kEntries / kEntriesPerBlock,
                              .lists = lists.data(),
                              .max_list = kList,
                              .out = out.data()});
  }
  const double num_flops = 4.0 * static_cast<double>(positions.size()) * kHeads * kHeadDim * (kWindow + kList);
  state.counters["flops"] =
      benchmark::Counter(num_flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

const int kRegistered = [] {
  for (const int num_threads : {1, 2}) {
    const std::string threads = "/threads:" + std::to_string(num_threads);
    benchmark::RegisterBenchmark(("sparse_attention/decode_1" + threads).c_str(), attend, 1, 1, num_threads)
        ->UseRealTime();
    benchmark::RegisterBenchmark(("sparse_attention/decode_8" + threads).c_str(), attend, 8, 1, num_threads)
        ->UseRealTime();
    benchmark::RegisterBenchmark(("sparse_attention/prefill_128" + threads).c_str(), attend, 1, 128, num_threads)
        ->UseRealTime();
  }
  return 0;
}();

}  // namespace
}  // namespace thalweg::kernels
