#include "kernels/attention/paged_attention/dispatch.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/attention/paged_attention/layout.h"
#include "kernels/attention/paged_attention/reference.h"
#include "kernels/attention/paged_attention/schedule.h"

namespace thalweg::kernels {
namespace attention {
namespace {

constexpr std::array kVersions{
    Version{device::CpuLevel::kAvx512, write_kv_avx512, attend_avx512, combine_avx512},
    Version{device::CpuLevel::kAvx2, write_kv_avx2, attend_avx2, combine_avx2},
};

// Less than this is done before other threads are awake, a few microseconds. A written key touches as many cache lines
// as it has dimensions.
constexpr std::int64_t kInlineProducts = 48 * 1024;
constexpr std::int64_t kInlineWrites = 8 * 1024;

SequenceBlocks blocks_of(const PagedKv& cache, const PagedBatch& batch, std::int32_t row) {
  return {.base = cache.base,
          .block_stride = cache.block_stride,
          .block_table = batch.block_tables.data() + std::int64_t{row} * batch.max_blocks_per_row,
          .num_kv_heads = cache.layout.num_kv_heads,
          .head_dim = cache.layout.head_dim,
          .block_size = cache.layout.block_size,
          .dtype = cache.layout.dtype};
}

void check_shape(const PagedKv& cache, const PagedBatch& batch) {
  const KvLayout& layout = cache.layout;
  CHECK_GT(layout.num_kv_heads, 0);
  CHECK_GT(layout.block_size, 0);
  CHECK_GT(layout.head_dim, 0);
  CHECK_EQ(layout.head_dim % 8, 0);
  CHECK_GE(cache.block_stride, layout.bytes_per_block());
  CHECK_EQ(batch.cu_seqlens.size(), batch.context_lens.size() + 1);
  CHECK_EQ(static_cast<std::size_t>(batch.cu_seqlens.back()), batch.positions.size());
  CHECK_GE(batch.block_tables.size(), batch.context_lens.size() * batch.max_blocks_per_row);
  for (std::size_t row = 0; row < batch.context_lens.size(); ++row) {
    // Tokens of a row are consecutive and end its context.
    const std::int32_t first = batch.cu_seqlens[row];
    const std::int32_t end = batch.cu_seqlens[row + 1];
    if (first == end) continue;
    CHECK_EQ(batch.positions[first] + end - first, batch.context_lens[row]);
    CHECK_EQ(batch.positions[end - 1] + 1, batch.context_lens[row]);
    CHECK_LE(std::int64_t{batch.context_lens[row]}, std::int64_t{batch.max_blocks_per_row} * layout.block_size);
  }
}

template <typename Body>
void for_each_task(device::Stream& stream, std::int64_t num_tasks, bool inline_here, Body body) {
  if (inline_here || num_tasks == 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) body(task, 0);
  } else {
    stream.threads->parallel_for(num_tasks, body);
  }
}

void attend_with_reference(device::Stream& stream, const PagedAttentionParams& params) {
  const PagedBatch& batch = params.batch;
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(batch.context_lens.size()); ++row) {
    const std::int32_t first = batch.cu_seqlens[row];
    const SequenceBlocks blocks = blocks_of(params.cache, batch, row);
    stream.threads->parallel_for(batch.cu_seqlens[row + 1] - first, [&](std::int64_t token, int) {
      attend_reference(params, blocks, first + static_cast<std::int32_t>(token));
    });
  }
}

}  // namespace

std::span<const Version> versions() { return kVersions; }

const Version* choose_version(device::CpuLevel level, const KvLayout& layout, std::int32_t num_heads) {
  if (layout.block_size % kTokenGroup != 0 || layout.head_dim > kMaxHeadDim) return nullptr;
  if (num_heads / layout.num_kv_heads > kMaxRows) return nullptr;
  for (const Version& version : kVersions) {
    if (version.level <= level) return &version;
  }
  return nullptr;
}

void write_kv_with(const Version* version, device::Stream& stream, const PagedKv& cache, const PagedBatch& batch,
                   const float* k, std::int64_t k_stride, const float* v, std::int64_t v_stride) {
  if (batch.positions.empty()) return;
  check_shape(cache, batch);
  constexpr std::int32_t kTokensPerTask = 32;
  const auto run_task = version == nullptr ? write_kv_reference : version->write_kv;
  // Task t is tokens [8 t, 8 t + 8) of the batch, whatever rows they are of.
  const auto num_tokens = static_cast<std::int32_t>(batch.positions.size());
  const std::int64_t num_tasks = (num_tokens + kTokensPerTask - 1) / kTokensPerTask;
  const std::int64_t num_elements = std::int64_t{num_tokens} * cache.layout.num_kv_heads * cache.layout.head_dim;
  for_each_task(stream, num_tasks, num_elements <= kInlineWrites, [&](std::int64_t task, int) {
    std::int32_t token = static_cast<std::int32_t>(task) * kTokensPerTask;
    const std::int32_t end = std::min(num_tokens, token + kTokensPerTask);
    auto row = static_cast<std::int32_t>(std::ranges::upper_bound(batch.cu_seqlens, token) - batch.cu_seqlens.begin());
    for (--row; token < end; ++row) {
      const std::int32_t row_end = std::min(end, batch.cu_seqlens[row + 1]);
      run_task({.blocks = blocks_of(cache, batch, row),
                .k = k + token * k_stride,
                .k_stride = k_stride,
                .v = v + token * v_stride,
                .v_stride = v_stride,
                .positions = batch.positions.data() + token,
                .num_tokens = row_end - token});
      token = row_end;
    }
  });
}

void paged_attention_with(const Version* version, device::Stream& stream, const PagedAttentionParams& params) {
  if (params.batch.positions.empty()) return;
  check_shape(params.cache, params.batch);
  const KvLayout& layout = params.cache.layout;
  CHECK_GT(params.num_heads, 0);
  CHECK_EQ(params.num_heads % layout.num_kv_heads, 0);
  if (version == nullptr) return attend_with_reference(stream, params);

  const std::int32_t num_group_heads = params.num_heads / layout.num_kv_heads;
  const Schedule schedule =
      make_schedule(params.batch, params.window, layout.num_kv_heads, num_group_heads, stream.threads->num_threads());
  const std::int64_t state_size = std::int64_t{num_group_heads} * (2 + layout.head_dim);  // of one query
  const std::int64_t num_partial_floats = schedule.num_partial_queries * layout.num_kv_heads * state_size;
  const std::int64_t num_scratch_floats = stream.threads->num_threads() * kScratchFloats + num_partial_floats;
  auto* const scratch = reinterpret_cast<float*>(
      stream.threads->scratch(device::ScratchSlot::kAttention, num_scratch_floats * sizeof(float)));
  float* const partials = scratch + stream.threads->num_threads() * kScratchFloats;
  const auto partials_of = [&](const Span& span, std::int32_t kv_head) {
    return partials + (span.first_partial_query * layout.num_kv_heads +
                       std::int64_t{kv_head} * span.num_partitions() * span.num_queries) *
                          state_size;
  };
  const auto offset_of = [&](std::int32_t token, std::int32_t kv_head, std::int64_t stride) {
    return token * stride + std::int64_t{kv_head} * num_group_heads * layout.head_dim;
  };

  const auto run_task = [&](std::int64_t index, int thread) {
    const Task task = schedule.task(index);
    const Span& span = schedule.spans[task.span];
    AttendArgs args{.blocks = blocks_of(params.cache, params.batch, span.row),
                    .kv_head = task.kv_head,
                    .num_group_heads = num_group_heads,
                    .q = params.q + offset_of(span.first_token, task.kv_head, params.q_stride),
                    .q_stride = params.q_stride,
                    .num_queries = span.num_queries,
                    .first_position = span.first_position,
                    .scale = params.scale,
                    .window = params.window,
                    .out = params.out + offset_of(span.first_token, task.kv_head, params.out_stride),
                    .out_stride = params.out_stride,
                    .scratch = scratch + thread * kScratchFloats};
    if (span.split) {
      args.partition = task.partition;
      args.partial = partials_of(span, task.kv_head) +
                     std::int64_t{task.partition - span.first_partition} * span.num_queries * state_size;
    }
    version->attend(args);
  };
  for_each_task(stream, schedule.num_tasks(), schedule.num_products * layout.head_dim <= kInlineProducts, run_task);

  for (const Span& span : schedule.spans) {
    if (!span.split) continue;
    for (std::int32_t kv_head = 0; kv_head < layout.num_kv_heads; ++kv_head) {
      version->combine({.partials = partials_of(span, kv_head),
                        .num_partitions = span.num_partitions(),
                        .num_queries = span.num_queries,
                        .num_group_heads = num_group_heads,
                        .head_dim = layout.head_dim,
                        .out = params.out + offset_of(span.first_token, kv_head, params.out_stride),
                        .out_stride = params.out_stride});
    }
  }
}

}  // namespace attention

std::int64_t KvLayout::bytes_per_block() const {
  const std::int64_t num_elements = std::int64_t{2} * num_kv_heads * head_dim * block_size;
  return (device::row_bytes(dtype, num_elements) + 63) / 64 * 64;
}

void write_kv(device::Stream& stream, const PagedKv& cache, const PagedBatch& batch, const float* k,
              std::int64_t k_stride, const float* v, std::int64_t v_stride) {
  const attention::Version* version = attention::choose_version(stream.cpu_level, cache.layout, 1);
  attention::write_kv_with(version, stream, cache, batch, k, k_stride, v, v_stride);
}

void paged_attention(device::Stream& stream, const PagedAttentionParams& params) {
  const attention::Version* version =
      attention::choose_version(stream.cpu_level, params.cache.layout, params.num_heads);
  attention::paged_attention_with(version, stream, params);
}

}  // namespace thalweg::kernels
