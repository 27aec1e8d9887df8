// Time of one layer's attention, with the two roofs: bytes of keys and values that must be read once per step, and
// multiply-adds of scores and values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/attention/paged_attention/cases.h"

namespace thalweg::kernels::attention {
namespace {

std::vector<Case> bench_cases() {
  using enum device::DType;
  std::vector<Case> cases;
  for (const std::int32_t context : {64, 320, 1024, 4096, 16384}) {
    cases.push_back({"decode_1x" + std::to_string(context), 9, 3, 64, 16, kF16, 0, {{context, 1}}});
  }
  cases.push_back({"decode_32x320", 9, 3, 64, 16, kF16, 0, std::vector<RowShape>(32, {320, 1})});
  cases.push_back({"decode_32x320_bf16", 9, 3, 64, 16, kBF16, 0, std::vector<RowShape>(32, {320, 1})});
  cases.push_back({"decode_32x320_f32", 9, 3, 64, 16, kF32, 0, std::vector<RowShape>(32, {320, 1})});
  cases.push_back({"verify_8x320_5_drafts", 9, 3, 64, 16, kF16, 0, std::vector<RowShape>(8, {320, 5})});
  for (const std::int32_t context : {128, 512, 2048, 4096}) {
    cases.push_back({"prefill_" + std::to_string(context), 9, 3, 64, 16, kF16, 0, {{context, context}}});
  }
  cases.push_back({"prefill_512_of_4096", 9, 3, 64, 16, kF16, 0, {{4096, 512}}});
  cases.push_back({"prefill_512_mha_96", 32, 32, 96, 16, kF16, 0, {{512, 512}}});
  cases.push_back({"prefill_512_qwen3_128", 16, 8, 128, 16, kF16, 0, {{512, 512}}});
  cases.push_back({"prefill_2048_window_512_gemma_256", 4, 1, 256, 16, kF16, 512, {{2048, 2048}}});
  cases.push_back({"decode_8x1000_gemma_256", 4, 1, 256, 16, kF16, 512, std::vector<RowShape>(8, {1000, 1})});
  cases.push_back({"decode_8x1000_mha_96", 32, 32, 96, 16, kF16, 0, std::vector<RowShape>(8, {1000, 1})});
  return cases;
}

/// Several layers' caches in turn, so that a step finds none of them in the processor's own cache, as in a model.
struct Layers {
  Layers(const Case& shape, int num_layers) {
    layout = {shape.num_kv_heads, shape.head_dim, shape.block_size, shape.dtype};
    for (const RowShape& row : shape.rows) {
      max_blocks = std::max(max_blocks, (row.context_len + shape.block_size - 1) / shape.block_size);
    }
    const auto num_blocks = static_cast<std::int32_t>(shape.rows.size()) * max_blocks;
    block_tables.resize(num_blocks);
    std::iota(block_tables.begin(), block_tables.end(), 0);
    std::mt19937 random(1);
    std::ranges::shuffle(block_tables, random);
    for (const RowShape& row : shape.rows) {
      for (std::int32_t i = row.context_len - row.num_new; i < row.context_len; ++i) positions.push_back(i);
      cu_seqlens.push_back(static_cast<std::int32_t>(positions.size()));
      context_lens.push_back(row.context_len);
    }
    memory = device::Buffer(num_layers * num_blocks * layout.bytes_per_block());
    for (int layer = 0; layer < num_layers; ++layer) {
      caches.push_back(
          {memory.data() + layer * num_blocks * layout.bytes_per_block(), layout.bytes_per_block(), layout});
    }
    q.assign(positions.size() * shape.num_heads * shape.head_dim, 0.01F);
    out = q;
  }

  PagedBatch batch() const { return {positions, cu_seqlens, context_lens, block_tables, max_blocks}; }

  KvLayout layout;
  std::int32_t max_blocks = 0;
  std::vector<std::int32_t> positions, cu_seqlens{0}, context_lens, block_tables;
  device::Buffer memory;
  std::vector<PagedKv> caches;
  std::vector<float> q, out;
};

void run(benchmark::State& state, const Case& shape, int num_threads) {
  device::ThreadPool threads(num_threads);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  constexpr int kLayers = 12;
  Layers layers(shape, kLayers);
  const std::int64_t q_size = std::int64_t{shape.num_heads} * shape.head_dim;
  const std::int64_t kv_size = std::int64_t{shape.num_kv_heads} * shape.head_dim;

  // Random keys and values at every position.
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (std::size_t row = 0; row < shape.rows.size(); ++row) {
    const std::int32_t context = shape.rows[row].context_len;
    std::vector<std::int32_t> positions(context), cu_seqlens{0, context}, context_lens{context};
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> kv(context * kv_size);
    for (float& value : kv) value = normal(random);
    const std::span<const std::int32_t> table =
        std::span(layers.block_tables).subspan(row * layers.max_blocks, layers.max_blocks);
    for (const PagedKv& cache : layers.caches) {
      write_kv(stream, cache, {positions, cu_seqlens, context_lens, table, layers.max_blocks}, kv.data(), kv_size,
               kv.data(), kv_size);
    }
  }
  for (float& value : layers.q) value = normal(random);

  std::size_t layer = 0;
  for (auto _ : state) {
    paged_attention(stream, {.q = layers.q.data(),
                             .q_stride = q_size,
                             .num_heads = shape.num_heads,
                             .cache = layers.caches[layer],
                             .batch = layers.batch(),
                             .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
                             .window = shape.window,
                             .out = layers.out.data(),
                             .out_stride = q_size});
    layer = (layer + 1) % kLayers;
  }

  double num_bytes = 0.0;
  double num_flops = 0.0;
  for (const RowShape& row : shape.rows) {
    const double seen = shape.window > 0 ? std::min(row.context_len, shape.window + row.num_new - 1) : row.context_len;
    num_bytes += seen * 2.0 * static_cast<double>(device::row_bytes(shape.dtype, kv_size));
    for (std::int32_t i = 0; i < row.num_new; ++i) {
      const std::int32_t keys = row.context_len - row.num_new + i + 1;
      num_flops += 4.0 * static_cast<double>(q_size) * (shape.window > 0 ? std::min(keys, shape.window) : keys);
    }
  }
  const auto per_second = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["kv_bytes"] = benchmark::Counter(num_bytes, per_second, benchmark::Counter::kIs1000);
  state.counters["flops"] = benchmark::Counter(num_flops, per_second, benchmark::Counter::kIs1000);
}

void write(benchmark::State& state, std::int32_t num_rows, std::int32_t num_new) {
  device::ThreadPool threads(2);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  constexpr int kLayers = 12;
  const Case shape{"", 9, 3, 64, 16, device::DType::kF16, 0, std::vector<RowShape>(num_rows, {512, num_new})};
  Layers layers(shape, kLayers);
  const std::int64_t kv_size = std::int64_t{shape.num_kv_heads} * shape.head_dim;
  std::size_t layer = 0;
  for (auto _ : state) {
    write_kv(stream, layers.caches[layer], layers.batch(), layers.q.data(), kv_size, layers.q.data(), kv_size);
    layer = (layer + 1) % kLayers;
  }
  state.SetItemsProcessed(state.iterations() * num_rows * num_new);
}

const int kRegistered = [] {
  for (const int num_threads : {1, 2}) {
    for (const Case& shape : bench_cases()) {
      const std::string name = "paged_attention/" + shape.name + "/threads:" + std::to_string(num_threads);
      benchmark::RegisterBenchmark(name.c_str(), run, shape, num_threads)->UseRealTime();
    }
  }
  benchmark::RegisterBenchmark("write_kv/decode_32", write, 32, 1)->UseRealTime();
  benchmark::RegisterBenchmark("write_kv/decode_1", write, 1, 1)->UseRealTime();
  benchmark::RegisterBenchmark("write_kv/prefill_512", write, 1, 512)->UseRealTime();
  return 0;
}();

}  // namespace
}  // namespace thalweg::kernels::attention
