// Each query's rows are decoded once into scratch that its heads share. Queries go in waves of as many as there are
// threads, which bounds the scratch and still gives each thread several tasks.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/attention/sparse_attention.h"
#include "kernels/attention/sparse_attention/paged_entries.h"
#include "kernels/attention/sparse_attention/versions.h"

namespace thalweg::kernels {
namespace {

// Some ten microseconds of one thread.
constexpr std::int32_t kDecodedRowsPerTask = 32;

/// Part of the window: ring positions [first_ring, end_ring), then tokens [first_step, end_step) of the step.
struct Query {
  std::int32_t row = 0;
  std::int32_t token = 0;
  std::int32_t first_ring = 0;
  std::int32_t end_ring = 0;
  std::int32_t first_step = 0;
  std::int32_t end_step = 0;

  std::int32_t num_window() const { return end_ring - first_ring + end_step - first_step; }
};

Query make_query(const SparseAttentionParams& params, std::int32_t row, std::int32_t token) {
  const std::int32_t begin = params.rings[row].begin;
  const std::span<const std::int32_t> step_cu_seqlens =
      params.step_cu_seqlens.empty() ? params.cu_seqlens : params.step_cu_seqlens;
  const std::int32_t row_token = step_cu_seqlens[row];  // first step row
  const std::int32_t row_end = step_cu_seqlens[row + 1];
  const std::int32_t last = params.cu_seqlens[row + 1] - 1;
  const std::int32_t row_position = params.positions[last] - (row_end - 1 - row_token);
  const std::int32_t position = params.positions[token];
  CHECK_EQ(params.positions[last] - position, last - token);
  CHECK_GE(position, row_position);
  // The window ends with the query, or before the drafts.
  const std::int32_t window_end = params.sees_whole_step ? row_position : position + 1;
  const std::int32_t first = std::max(begin, window_end - params.window);
  Query query{.row = row, .token = token, .first_ring = std::min(first, row_position), .end_ring = row_position};
  if (params.sees_whole_step) {
    query.first_step = row_token;
    query.end_step = row_end;
  } else {
    query.end_step = row_end - (last - token);
    query.first_step = std::min(query.end_step, row_token + std::max(0, first - row_position));
  }
  CHECK_LE(query.end_ring - query.first_ring, params.ring_capacity);
  return query;
}

std::vector<Query> make_queries(const SparseAttentionParams& params) {
  std::vector<Query> queries;
  queries.reserve(params.positions.size());
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(params.rings.size()); ++row) {
    CHECK_GE(params.rings[row].begin, 0);
    for (std::int32_t token = params.cu_seqlens[row]; token < params.cu_seqlens[row + 1]; ++token) {
      queries.push_back(make_query(params, row, token));
    }
  }
  return queries;
}

/// Memory of one query of a wave.
struct Gathered {
  std::int32_t num_rows = 0;
  const std::byte** sources = nullptr;  // [num_rows] stored rows; those of the window come first
  float* rows = nullptr;                // [num_rows, row_stride], decoded
};

/// Fills `gathered.sources` and counts them.
void find_rows(const SparseAttentionParams& params, const Query& query, Gathered& gathered) {
  const std::int64_t row_bytes = quant_row_bytes(QuantFormat::kF8Block32, params.head_dim);
  const std::byte** source = gathered.sources;
  for (std::int32_t position = query.first_ring; position < query.end_ring; ++position) {
    *source++ = params.rings[query.row].rows + position % params.ring_capacity * row_bytes;
  }
  for (std::int32_t token = query.first_step; token < query.end_step; ++token) {
    *source++ = params.step_rows + token * row_bytes;
  }
  if (params.lists != nullptr) {
    const std::int32_t* list = params.lists + std::int64_t{query.token} * params.max_list;
    const std::int32_t* block_table = params.block_tables.data() + std::int64_t{query.row} * params.max_blocks_per_row;
    for (std::int32_t i = 0; i < params.max_list; ++i) {
      if (list[i] >= 0) *source++ = entry_at(params.entries, block_table, params.max_blocks_per_row, list[i]);
    }
  }
  gathered.num_rows = static_cast<std::int32_t>(source - gathered.sources);
}

void check_shape(const SparseAttentionParams& params) {
  CHECK_GT(params.num_heads, 0);
  CHECK_GT(params.head_dim, 0);
  CHECK_EQ(params.head_dim % 32, 0);
  CHECK_GE(params.window, 0);
  CHECK_EQ(params.cu_seqlens.size(), params.rings.size() + 1);
  CHECK_EQ(static_cast<std::size_t>(params.cu_seqlens.back()), params.positions.size());
  if (params.lists == nullptr) return;
  CHECK_GT(params.entries.entries_per_block, 0);
  CHECK_GE(params.entries.entry_bytes, quant_row_bytes(params.entries.format, params.head_dim));
  CHECK_GE(params.block_tables.size(), params.rings.size() * params.max_blocks_per_row);
}

/// The scratch of one call.
struct Scratch {
  std::int64_t row_stride = 0;          // floats
  std::int64_t num_thread_weights = 0;  // floats of each thread
  float* weights = nullptr;
  std::vector<Gathered> wave;
};

Scratch make_scratch(device::Stream& stream, const SparseAttentionParams& params, std::int64_t max_rows,
                     std::int64_t wave_size) {
  // A cache line more than a row, or all rows would begin in the same sets of a cache.
  Scratch scratch{.row_stride = params.head_dim + 16,
                  .num_thread_weights = sparse::kMaxHeads * sparse::padded_rows(max_rows)};
  const std::int64_t num_threads = stream.threads->num_threads();
  const std::int64_t pointer_bytes = wave_size * max_rows * static_cast<std::int64_t>(sizeof(const std::byte*));
  const std::int64_t num_floats = num_threads * scratch.num_thread_weights + wave_size * max_rows * scratch.row_stride;
  std::byte* memory = stream.threads->scratch(device::ScratchSlot::kAttention,
                                              pointer_bytes + num_floats * static_cast<std::int64_t>(sizeof(float)));
  auto** const sources = reinterpret_cast<const std::byte**>(memory);
  scratch.weights = reinterpret_cast<float*>(memory + pointer_bytes);
  float* const rows = scratch.weights + num_threads * scratch.num_thread_weights;
  for (std::int64_t i = 0; i < wave_size; ++i) {
    scratch.wave.push_back({.sources = sources + i * max_rows, .rows = rows + i * max_rows * scratch.row_stride});
  }
  return scratch;
}

void decode_rows(const SparseAttentionParams& params, const Query& query, const Gathered& gathered,
                 std::int64_t row_stride, std::int32_t first) {
  const std::int32_t end = std::min(gathered.num_rows, first + kDecodedRowsPerTask);
  for (std::int32_t i = first; i < end; ++i) {
    const QuantFormat format = i < query.num_window() ? QuantFormat::kF8Block32 : params.entries.format;
    dequantize_row(format, gathered.sources[i], params.head_dim, gathered.rows + i * row_stride);
  }
}

void run_wave(device::Stream& stream, const SparseAttentionParams& params, std::span<const Query> queries,
              std::int64_t max_rows, Scratch& scratch) {
  const auto num_queries = static_cast<std::int64_t>(queries.size());
  stream.threads->parallel_for(num_queries,
                               [&](std::int64_t i, int) { find_rows(params, queries[i], scratch.wave[i]); });

  const std::int64_t num_pieces = (max_rows + kDecodedRowsPerTask - 1) / kDecodedRowsPerTask;
  stream.threads->parallel_for(num_queries * num_pieces, [&](std::int64_t task, int) {
    const std::int64_t i = task / num_pieces;
    decode_rows(params, queries[i], scratch.wave[i], scratch.row_stride,
                static_cast<std::int32_t>(task % num_pieces) * kDecodedRowsPerTask);
  });

  sparse::Attend* attend = stream.cpu_level >= device::CpuLevel::kAvx2 ? sparse::attend_avx2 : sparse::attend_reference;
  const std::int64_t num_groups = (params.num_heads + sparse::kMaxHeads - 1) / sparse::kMaxHeads;
  stream.threads->parallel_for(num_queries * num_groups, [&](std::int64_t task, int thread) {
    const Gathered& gathered = scratch.wave[task / num_groups];
    const auto head = static_cast<std::int32_t>(task % num_groups) * sparse::kMaxHeads;
    const std::int64_t offset =
        (std::int64_t{queries[task / num_groups].token} * params.num_heads + head) * params.head_dim;
    attend({.q = params.q + offset,
            .num_heads = std::min(sparse::kMaxHeads, params.num_heads - head),
            .head_dim = params.head_dim,
            .scale = params.scale,
            .sinks = params.sinks + head,
            .rows = gathered.rows,
            .row_stride = scratch.row_stride,
            .num_rows = gathered.num_rows,
            .rounds_bf16 = params.rounds_bf16,
            .weights = scratch.weights + thread * scratch.num_thread_weights,
            .out = params.out + offset});
  });
}

}  // namespace

void sparse_attention(device::Stream& stream, const SparseAttentionParams& params) {
  if (params.positions.empty()) return;
  check_shape(params);
  const std::vector<Query> queries = make_queries(params);
  std::int64_t max_rows = 0;
  for (const Query& query : queries) max_rows = std::max<std::int64_t>(max_rows, query.num_window());
  if (params.lists != nullptr) max_rows += params.max_list;

  const std::size_t wave_size = std::min<std::size_t>(queries.size(), stream.threads->num_threads());
  Scratch scratch = make_scratch(stream, params, max_rows, static_cast<std::int64_t>(wave_size));
  for (std::size_t first = 0; first < queries.size(); first += wave_size) {
    const std::size_t count = std::min(wave_size, queries.size() - first);
    run_wave(stream, params, std::span(queries).subspan(first, count), max_rows, scratch);
  }
}

}  // namespace thalweg::kernels
