// Decoding one token after contexts of several lengths: only the index may grow with them. THALWEG_BENCH_MODEL names a
// checkpoint folder, for instance of `thalweg make-tiny deepseek_v41`.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "device/thread_pool.h"
#include "models/registry.h"
#include "step/batch_view.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v41 {
namespace {

constexpr std::int32_t kBlockSize = 64;

/// One sequence whose cache holds numbers of ordinary size instead of a computed context.
void decode(benchmark::State& state) {
  const char* path = std::getenv("THALWEG_BENCH_MODEL");
  if (path == nullptr) return state.SkipWithError("THALWEG_BENCH_MODEL is not set");
  device::ThreadPool threads(device::num_usable_cpus());
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  const auto checkpoint = weights::Checkpoint::open(path);
  if (!checkpoint) return state.SkipWithError(checkpoint.error().message.c_str());
  const auto model = load_model(**checkpoint, stream, {.block_size = kBlockSize});
  if (!model) return state.SkipWithError(model.error().message.c_str());
  const ModelInfo& info = (*model)->info();
  (*model)->reserve(1);

  // The token begins a group of two, so nothing is missing of a group that was open.
  const auto context = static_cast<std::int32_t>(state.range(0)) + 1;
  const std::int32_t num_blocks = context / kBlockSize + 1;
  device::Buffer blocks(static_cast<std::size_t>(num_blocks * info.cache.bytes_per_block));
  device::Buffer states(static_cast<std::size_t>(info.cache.state_bytes_per_slot));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    constexpr std::uint8_t kBytes[] = {0x7c, 0x35, 0x71, 0x7d, 0x79, 0x7b, 0x7e, 0x74};  // codes and scales alike
    blocks.data()[i] = static_cast<std::byte>(kBytes[(i * 2654435761U >> 9) & 7]);
  }
  std::vector<std::int32_t> table(static_cast<std::size_t>(num_blocks));
  std::iota(table.begin(), table.end(), 0);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(context), 7);
  const std::span<const std::int32_t> history = std::span(ids).first(ids.size() - 1);
  const std::int32_t position = context - 1, cu_seqlens[] = {0, 1}, slot = 0, zero = 0;
  std::vector<float> logits(static_cast<std::size_t>(info.vocab_size));
  for (auto _ : state) {
    (*model)->forward(stream,
                      {.token_ids = std::span(ids).last(1),
                       .positions = std::span(&position, 1),
                       .cu_seqlens = cu_seqlens,
                       .context_lens = std::span(&context, 1),
                       .block_tables = table,
                       .max_blocks_per_row = num_blocks,
                       .slots = std::span(&slot, 1),
                       .logit_tokens = std::span(&zero, 1),
                       .histories = std::span(&history, 1),
                       .cached_lens = std::span(&zero, 1),
                       .full_from = std::span(&zero, 1)},
                      {blocks.data(), num_blocks, states.data(), 1}, logits.data());
  }
}
BENCHMARK(decode)
    ->Name("deepseek_v41_decode")
    ->Arg(1 << 10)
    ->Arg(8 << 10)
    ->Arg(64 << 10)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace thalweg::models::deepseek_v41
