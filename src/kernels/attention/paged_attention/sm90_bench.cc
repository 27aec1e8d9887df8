// Decode, verification and prefill of the shapes in use. The cache holds random numbers: where keys lie costs the same
// whatever they are.
#include <fmt/format.h>

#include "kernels/attention/paged_attention/sm90_step.h"
#include "kernels/cuda_benches.h"

namespace thalweg::kernels {
namespace {

using attention::Case;
using attention::RowShape;

struct Work {
  std::int64_t num_bytes = 0;
  std::int64_t num_flops = 0;
};

Work work_of(const Case& test) {
  Work work;
  const auto visible = [&](std::int64_t keys) {
    return test.window > 0 ? std::min<std::int64_t>(keys, test.window) : keys;
  };
  for (const RowShape& row : test.rows) {
    const std::int64_t keys =
        test.window > 0 ? std::min(row.context_len, test.window + row.num_new - 1) : row.context_len;
    work.num_bytes += 4 * test.head_dim * (keys * test.num_kv_heads + std::int64_t{row.num_new} * test.num_heads);
    for (std::int64_t i = 0; i < row.num_new; ++i) {
      work.num_flops += 4 * visible(row.context_len - i) * test.num_heads * test.head_dim;
    }
  }
  return work;
}

void bench_case(device::CudaBench& bench, const Case& test) {
  const std::string name =
      fmt::format("paged_attention/{}/{}_{}x{}", test.name, test.num_heads, test.num_kv_heads, test.head_dim);
  if (!bench.wants(name)) return;
  const attention::BlockTables tables(test, 1);
  const device::CudaArena cache = bench.memory(attention::cache_bytes(test, tables.num_blocks));
  device::CudaArena memory = bench.memory(std::size_t{2} << 30);
  device::CudaStream stream = device::require(device::CudaStream::create(bench.device()));
  const std::int32_t few_rows = attention::max_few_rows(static_cast<std::int32_t>(test.rows.size()), test.num_kv_heads);
  attention::StepSm90 step(stream, memory, test, tables, few_rows);
  step.plan();
  device::require(stream.synchronize());
  const Work work = work_of(test);
  bench.run({.name = name,
             .num_bytes = work.num_bytes,
             .num_flops = work.num_flops,
             .num_sets = 1,  // larger than the cache, or its queries alone decide
             .launch = [&](device::Stream& on, std::int32_t) { step.attend(*on.cuda, cache.data(), 0.1F); }});
}

std::vector<RowShape> rows(std::size_t count, std::int32_t context_len, std::int32_t num_new) {
  return std::vector<RowShape>(count, {.context_len = context_len, .num_new = num_new});
}

}  // namespace

void bench_paged_attention(device::CudaBench& bench) {
  const auto run = [&](std::string name, std::int32_t num_heads, std::int32_t num_kv_heads, std::int32_t head_dim,
                       std::int32_t window, std::vector<RowShape> shape) {
    bench_case(bench, {std::move(name), num_heads, num_kv_heads, head_dim, 16, device::DType::kBF16, window,
                       std::move(shape)});
  };
  run("decode_64x8k", 32, 8, 128, 0, rows(64, 8192, 1));
  run("decode_64x8k", 64, 8, 128, 0, rows(64, 8192, 1));
  run("decode_64x8k", 32, 8, 64, 0, rows(64, 8192, 1));
  run("decode_64x8k", 8, 4, 256, 0, rows(64, 8192, 1));
  run("decode_64x8k_window_1k", 32, 8, 128, 1024, rows(64, 8192, 1));
  run("decode_256x1k", 32, 8, 128, 0, rows(256, 1024, 1));
  run("decode_1x8k", 32, 8, 128, 0, rows(1, 8192, 1));
  run("decode_1x128k", 32, 8, 128, 0, rows(1, 131072, 1));
  run("verify_64x8k_4", 32, 8, 128, 0, rows(64, 8192, 4));
  run("verify_64x8k_8", 32, 8, 128, 0, rows(64, 8192, 8));
  run("verify_1x8k_8", 32, 8, 128, 0, rows(1, 8192, 8));
  run("prefill_8k", 32, 8, 128, 0, rows(1, 8192, 8192));
  run("prefill_8k", 32, 8, 64, 0, rows(1, 8192, 8192));
  run("prefill_8k", 16, 4, 256, 0, rows(1, 8192, 8192));
  run("prefill_8k_window_1k", 32, 8, 128, 1024, rows(1, 8192, 8192));
  run("prefill_8x2k", 32, 8, 128, 0, rows(8, 2048, 2048));
  run("prefill_8k_after_24k", 32, 8, 128, 0, rows(1, 32768, 8192));
}

void bench_decoder_elementwise(device::CudaBench& bench) {
  constexpr std::int64_t kCols = 4096;
  constexpr std::int64_t kIntermediate = 14336;
  for (const std::int32_t num_tokens : {64, 8192}) {
    const Case test{"prepare", 32, 8, 128, 16, device::DType::kBF16, 0, rows(num_tokens / 64, 1024, 64)};
    const attention::BlockTables tables(test, 1);
    const device::CudaArena cache = bench.memory(attention::cache_bytes(test, tables.num_blocks));
    device::CudaArena memory = bench.memory(std::size_t{2} << 30);
    device::CudaStream stream = device::require(device::CudaStream::create(bench.device()));
    attention::StepSm90 step(stream, memory, test, tables);
    step.plan();
    device::require(stream.synchronize());
    attention::PrepareQkvSm90Params prepare = step.prepare_params(cache.data());
    prepare.q_norm = prepare.k_norm = reinterpret_cast<const float*>(memory.take(1024));
    prepare.cos_sin = reinterpret_cast<const float*>(memory.take(num_tokens * 128 * 4));
    prepare.rope_dim = 128;
    bench.run({.name = fmt::format("prepare_qkv/{}x32_8x128", num_tokens),
               .num_bytes = num_tokens * step.qkv_stride() * 4,
               .num_sets = 1,
               .launch = [&](device::Stream& on, std::int32_t) { step.prepare(*on.cuda, prepare); }});

    const AddRmsNormSm90Params norm{.residual = reinterpret_cast<float*>(memory.take(num_tokens * kCols * 4)),
                                    .x = memory.take(num_tokens * kCols * 2),
                                    .weight = reinterpret_cast<const float*>(memory.take(kCols * 4)),
                                    .epsilon = 1e-5F,
                                    .num_rows = num_tokens,
                                    .num_cols = kCols,
                                    .out = memory.take(num_tokens * kCols * 2)};
    bench.run({.name = fmt::format("add_rms_norm/{}x{}", num_tokens, kCols),
               .num_bytes = num_tokens * kCols * 12,
               .num_sets = 1,
               .launch = [&](device::Stream& on, std::int32_t) {
                 on.cuda->note("add_rms_norm", on.cuda->table().kernels->add_rms_norm(on.cuda->handle(), norm));
               }});

    const SwigluSm90Params swiglu{.gate_up = memory.take(num_tokens * kIntermediate * 4),
                                  .gate_up_stride = 2 * kIntermediate,
                                  .out = memory.take(num_tokens * kIntermediate * 2),
                                  .out_stride = kIntermediate,
                                  .num_rows = num_tokens,
                                  .num_cols = kIntermediate,
                                  .limit = 0.0F};
    bench.run({.name = fmt::format("swiglu/{}x{}", num_tokens, kIntermediate),
               .num_bytes = num_tokens * kIntermediate * 6,
               .num_sets = 1,
               .launch = [&](device::Stream& on, std::int32_t) {
                 on.cuda->note("swiglu", on.cuda->table().kernels->swiglu(on.cuda->handle(), swiglu));
               }});
  }
}

}  // namespace thalweg::kernels
