// Chooses a version, quantises activations, cuts the product into tasks.
#include <algorithm>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/packed_row.h"

namespace thalweg::kernels {
namespace {

using device::CpuLevel;

const LinearVersion& version_for(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512Vnni) return avx512_vnni_version();
  if (level >= CpuLevel::kAvx512) return avx512_version();
  if (level >= CpuLevel::kAvx2) return avx2_version();
#endif
  return reference_version();
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
std::int64_t divide_up(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

// A task should be worth about this much: bytes of weights streamed from memory, or multiply-adds done once the
// weights are shared by many tokens.
constexpr std::int64_t kTaskBytes = 48 << 10;
constexpr std::int64_t kTaskMacs = 1 << 20;
// Tokens that share one unpacked tile; their activations stay in the second-level cache.
constexpr std::int64_t kTokensPerTask = 96;
// Rows of activations that one quantising task takes.
constexpr std::int64_t kQuantizeTaskElements = 16 << 10;

// The rectangle of tiles and tokens that one task computes.
struct Cut {
  std::int64_t tiles = 1;
  std::int64_t tokens = 1;
};

Cut choose_cut(const PackedPart& part, std::int64_t num_tokens, int num_threads) {
  Cut cut;
  const std::int64_t num_token_blocks = divide_up(num_tokens, kTokensPerTask);
  cut.tokens = divide_up(num_tokens, num_token_blocks);
  const std::int64_t macs_per_tile = cut.tokens * kTileRows * part.num_cols;
  const std::int64_t wanted = std::min(kTaskBytes / part.tile_bytes, kTaskMacs / macs_per_tile);
  // Small products still give each thread a few tasks.
  const std::int64_t fair = part.num_tiles * num_token_blocks / (4 * num_threads);
  cut.tiles = std::clamp<std::int64_t>(std::min(wanted, fair), 1, part.num_tiles);
  return cut;
}

// Activations of one call in int8, in scratch.
struct QuantisedActivations {
  std::int8_t* codes = nullptr;
  ActivationGroup* groups = nullptr;
};

struct Scratch {
  QuantisedActivations activations;
  std::byte* per_thread = nullptr;
  std::int64_t per_thread_bytes = 0;
};

Scratch take_scratch(device::ThreadPool& threads, std::int64_t num_tokens, std::int64_t num_cols) {
  const std::int64_t code_bytes = round_up(num_tokens * num_cols, 64);
  const std::int64_t group_bytes =
      round_up(num_tokens * (num_cols / kGroupCols) * static_cast<std::int64_t>(sizeof(ActivationGroup)), 64);
  Scratch scratch;
  scratch.per_thread_bytes = product_scratch_bytes(num_cols);
  const std::int64_t total = code_bytes + group_bytes + threads.num_threads() * scratch.per_thread_bytes;
  std::byte* memory = threads.scratch(device::ScratchSlot::kLinear, static_cast<std::size_t>(total));
  scratch.activations.codes = reinterpret_cast<std::int8_t*>(memory);
  scratch.activations.groups = reinterpret_cast<ActivationGroup*>(memory + code_bytes);
  scratch.per_thread = memory + code_bytes + group_bytes;
  return scratch;
}

void quantize_activations(device::ThreadPool& threads, const LinearVersion& version, const LinearParams& params,
                          const QuantisedActivations& to) {
  const std::int64_t num_cols = params.weight->num_cols();
  const std::int64_t tokens_per_task = std::max<std::int64_t>(1, kQuantizeTaskElements / num_cols);
  threads.parallel_for(divide_up(params.num_tokens, tokens_per_task), [&](std::int64_t task, int) {
    const std::int64_t last = std::min((task + 1) * tokens_per_task, params.num_tokens);
    for (std::int64_t token = task * tokens_per_task; token < last; ++token) {
      version.quantize(params.x + token * params.x_stride, num_cols, to.codes + token * num_cols,
                       to.groups + token * (num_cols / kGroupCols));
    }
  });
}

void check_params(const device::Stream& stream, const LinearParams& params) {
  CHECK(stream.threads != nullptr);
  CHECK(params.weight != nullptr);
  const bool gated = params.epilogue == Epilogue::kSiluMul || params.epilogue == Epilogue::kGeluMul;
  CHECK_GE(params.x_stride, params.weight->num_cols());
  CHECK_GE(params.out_stride, gated ? params.weight->num_rows() / 2 : params.weight->num_rows());
  if (!gated) return;
  CHECK_EQ(params.weight->num_rows() % 2, 0);
  CHECK_EQ(params.weight->parts().size(), 1U);  // a gate and its up row share a tile
}

}  // namespace

std::int64_t product_scratch_bytes(std::int64_t num_cols) {
  const std::int64_t codes = round_up(num_cols, kGroupCols) * kTileRows;
  const std::int64_t scales =
      divide_up(num_cols, kGroupCols) * 2 * kTileRows * static_cast<std::int64_t>(sizeof(float));
  return codes + scales;
}

void linear(device::Stream& stream, const LinearParams& params) {
  if (params.num_tokens == 0) return;
  check_params(stream, params);
  device::ThreadPool& threads = *stream.threads;
  const LinearWeight& weight = *params.weight;
  const LinearVersion& version = version_for(stream.cpu_level);
  const std::span<const PackedPart> parts = weight.parts();

  const Scratch scratch = take_scratch(threads, params.num_tokens, weight.num_cols());
  if (!std::ranges::all_of(parts, [](const PackedPart& part) { return is_float(part.coding); })) {
    quantize_activations(threads, version, params, scratch.activations);
  }

  Product product{.x = params.x,
                  .x_stride = params.x_stride,
                  .codes = scratch.activations.codes,
                  .groups = scratch.activations.groups,
                  .bias = params.bias,
                  .out = params.out,
                  .out_stride = params.out_stride,
                  .epilogue = params.epilogue};
  for (const PackedPart& part : parts) {
    product.part = part;
    product.tiles = weight.storage().data() + part.offset;
    const Cut cut = choose_cut(part, params.num_tokens, threads.num_threads());
    const std::int64_t row_tasks = divide_up(part.num_tiles, cut.tiles);
    const std::int64_t token_tasks = divide_up(params.num_tokens, cut.tokens);
    threads.parallel_for(row_tasks * token_tasks, [&](std::int64_t task, int thread) {
      const std::int64_t first_tile = task % row_tasks * cut.tiles;
      const std::int64_t first_token = task / row_tasks * cut.tokens;
      version.product(product, first_tile, std::min(first_tile + cut.tiles, part.num_tiles), first_token,
                      std::min(first_token + cut.tokens, params.num_tokens),
                      scratch.per_thread + thread * scratch.per_thread_bytes);
    });
  }
}

void embedding(device::Stream& stream, const LinearWeight& table, std::span<const std::int32_t> ids, float scale,
               float* out) {
  CHECK(stream.threads != nullptr);
  const std::int64_t num_cols = table.num_cols();
  stream.threads->parallel_for(static_cast<std::int64_t>(ids.size()), [&](std::int64_t i, int) {
    float* row = out + i * num_cols;
    table.read_row(ids[static_cast<std::size_t>(i)], row);
    if (scale == 1.0F) return;
    for (std::int64_t k = 0; k < num_cols; ++k) row[k] *= scale;
  });
}

}  // namespace thalweg::kernels
