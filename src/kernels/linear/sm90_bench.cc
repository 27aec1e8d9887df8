// Products of a dense 8B model (hidden 4,096, FFN 14,336): decode batches, which stream W, and a prefill chunk.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda_benches.h"
#include "kernels/cuda_launch.h"

namespace thalweg::kernels {
namespace {

struct Case {
  LinearSm90Weights weights;
  const char* name;
  std::int64_t num_tokens;
  std::int64_t num_rows;
  std::int64_t num_cols;
};

// Against 60 MB of L2.
constexpr std::int64_t kSetsBytes = std::int64_t{1} << 30;

std::int64_t weight_bytes(const Case& bench_case) {
  const std::int64_t num_weights = bench_case.num_rows * bench_case.num_cols;
  if (bench_case.weights == LinearSm90Weights::kBF16) return 2 * num_weights;
  if (bench_case.weights == LinearSm90Weights::kQ4) {
    return num_weights / (8 * 64) * static_cast<std::int64_t>(sizeof(Q4UnitSm90));
  }
  return num_weights;
}

/// `memory` holds the sets of weights, then activations, scales and outputs.
void bench_case(device::CudaBench& bench, const device::CudaArena& memory, const Case& c) {
  const std::int64_t set_bytes = weight_bytes(c);
  const bool is_16_bit = c.weights == LinearSm90Weights::kBF16 || c.weights == LinearSm90Weights::kQ4;
  const std::int64_t x_bytes = c.num_tokens * c.num_cols * (is_16_bit ? 2 : 1);
  const std::int64_t out_bytes = c.num_tokens * c.num_rows * 2;
  std::byte* x = memory.data() + kSetsBytes;
  std::byte* scales = x + x_bytes;
  std::byte* out = scales + (std::int64_t{16} << 20);
  std::byte* scratch = out + out_bytes;
  bench.run({.name = fmt::format("linear/{}/{}x{}x{}", c.name, c.num_tokens, c.num_rows, c.num_cols),
             .num_bytes = set_bytes + x_bytes + out_bytes,
             .num_flops = 2 * c.num_tokens * c.num_rows * c.num_cols,
             .num_sets = static_cast<std::int32_t>(std::clamp<std::int64_t>(kSetsBytes / set_bytes, 1, 64)),
             .launch = [&](device::Stream& stream, std::int32_t set) {
               LinearSm90Params params;
               params.weights = c.weights;
               params.x = x;
               params.x_stride = c.num_cols;
               params.x_scale = reinterpret_cast<const float*>(scales);
               params.x_scale_stride = c.num_tokens;
               params.num_tokens = c.num_tokens;
               params.weight = memory.data() + set * set_bytes;
               params.weight_scale = reinterpret_cast<const float*>(scales);
               params.num_rows = c.num_rows;
               params.num_cols = c.num_cols;
               params.out = out;
               params.out_stride = c.num_rows;
               params.scratch = scratch;
               params.num_multiprocessors = bench.device().properties().num_multiprocessors;
               params.starts_early = true;
               launch(stream, "linear", &CudaKernels::linear, params);
             }});
}

}  // namespace

void bench_linear(device::CudaBench& bench) {
  if (!bench.wants("linear")) return;
  const device::CudaArena memory = bench.memory(std::size_t{2} << 30);
  struct Format {
    LinearSm90Weights weights;
    const char* name;
  };
  for (const Format& format :
       {Format{LinearSm90Weights::kBF16, "bf16"}, Format{LinearSm90Weights::kFp8, "fp8"},
        Format{LinearSm90Weights::kFp8Blocks, "fp8_blocks"}, Format{LinearSm90Weights::kQ4, "q4"}}) {
    for (const std::int64_t num_tokens : {1, 8, 16, 32, 64, 128, 256, 4096}) {
      for (const auto& [num_rows, num_cols] :
           {std::pair<std::int64_t, std::int64_t>{4096, 4096}, {6144, 4096}, {28672, 4096}, {4096, 14336}}) {
        bench_case(bench, memory, {format.weights, format.name, num_tokens, num_rows, num_cols});
      }
    }
  }
}

}  // namespace thalweg::kernels
