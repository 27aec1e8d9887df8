// Time of one index: scores of all entries of each query, and the choice.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/index/index.h"

namespace thalweg::kernels {
namespace {

constexpr std::int32_t kHeads = 32;
constexpr std::int32_t kHeadDim = 128;
constexpr std::int32_t kTopK = 512;
constexpr std::int32_t kMaxBlocks = 2048;
constexpr std::int32_t kEntriesPerBlock = 64;

void select(benchmark::State& state, std::int32_t num_entries, std::int32_t num_tokens, CandidateUse use,
            int num_threads) {
  device::ThreadPool threads(num_threads);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto key_bytes = quant_row_bytes(QuantFormat::kF4Block32, kHeadDim);
  device::Buffer cache(num_entries * key_bytes);
  for (std::size_t i = 0; i < cache.size(); ++i) {
    const bool is_scale = static_cast<std::int64_t>(i) % key_bytes >= kHeadDim / 2;
    cache.data()[i] = static_cast<std::byte>(is_scale ? 127 : random() & 0xFF);
  }
  std::vector<std::int32_t> block_table(num_entries / kEntriesPerBlock);
  std::iota(block_table.begin(), block_table.end(), 0);
  const PagedEntries keys{cache.data(), kEntriesPerBlock * key_bytes, kEntriesPerBlock, key_bytes,
                          QuantFormat::kF4Block32};
  std::vector<float> q(std::int64_t{num_tokens} * kHeads * kHeadDim);
  std::vector<float> weights(std::int64_t{num_tokens} * kHeads);
  for (float& value : q) value = normal(random);
  for (float& value : weights) value = normal(random);
  fake_quantize(stream, QuantFormat::kF4Block32, 1, static_cast<std::int64_t>(q.size()), q.data(), 0, q.data(), 0);
  const std::vector<std::int32_t> cu_seqlens{0, num_tokens};
  const std::vector<std::int32_t> num_visible(num_tokens, num_entries);
  std::vector<std::int32_t> lists(std::int64_t{num_tokens} * kTopK);
  std::vector<std::int32_t> blocks(std::int64_t{num_tokens} * kMaxBlocks);
  IndexParams params{.q = q.data(),
                     .weights = weights.data(),
                     .num_heads = kHeads,
                     .head_dim = kHeadDim,
                     .keys = keys,
                     .cu_seqlens = cu_seqlens,
                     .block_tables = block_table,
                     .max_blocks_per_row = num_entries / kEntriesPerBlock,
                     .num_visible = num_visible,
                     .use = CandidateUse::kChoose,
                     .candidates = {8, kMaxBlocks, blocks.data()},
                     .top_k = kTopK,
                     .lists = lists.data()};
  if (use == CandidateUse::kRestrict) index_select(stream, params);
  params.use = use;
  for (auto _ : state) index_select(stream, params);
  state.SetItemsProcessed(state.iterations() * num_tokens * num_entries);
}

const int kRegistered = [] {
  const auto add = [](const std::string& name, std::int32_t num_entries, std::int32_t num_tokens, CandidateUse use) {
    for (const int num_threads : {1, 2}) {
      benchmark::RegisterBenchmark(("index/" + name + "/threads:" + std::to_string(num_threads)).c_str(), select,
                                   num_entries, num_tokens, use, num_threads)
          ->UseRealTime();
    }
  };
  add("decode_8K", 8 * 1024, 1, CandidateUse::kNone);
  add("decode_64K", 64 * 1024, 1, CandidateUse::kNone);
  add("decode_1M", 1024 * 1024, 1, CandidateUse::kNone);
  add("decode_1M_candidates", 1024 * 1024, 1, CandidateUse::kChoose);
  add("decode_1M_restricted", 1024 * 1024, 1, CandidateUse::kRestrict);
  add("prefill_64_of_8K", 8 * 1024, 64, CandidateUse::kNone);
  return 0;
}();

}  // namespace
}  // namespace thalweg::kernels
