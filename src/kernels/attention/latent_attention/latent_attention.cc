#include "kernels/attention/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "device/thread_pool.h"

namespace thalweg::kernels {
namespace {

constexpr std::int32_t kTileRows = 32;      // decoded at a time: 72 KiB of rows of 576 channels
constexpr std::int32_t kHeadsPerTask = 16;  // that share a decoded tile
constexpr std::int32_t kLanes = 16;

float dot(const float* a, const float* b, std::int64_t count) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (std::int32_t lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i] * b[i];
  for (std::int32_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int32_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

std::span<const std::int32_t> block_table(const PagedBatch& batch, std::size_t sequence) {
  const auto size = static_cast<std::size_t>(batch.max_blocks_per_row);
  return batch.block_tables.subspan(sequence * size, size);
}

std::size_t sequence_of(const PagedBatch& batch, std::int64_t token) {
  const auto after = std::ranges::upper_bound(batch.cu_seqlens, static_cast<std::int32_t>(token));
  return static_cast<std::size_t>(after - batch.cu_seqlens.begin()) - 1;
}

/// One thread's memory for one task.
struct Scratch {
  float* tile;    // [kTileRows, row_dim]
  float* sums;    // [heads, value_dim], not yet divided
  float* maxima;  // [heads]
  float* totals;  // [heads], denominators

  static std::size_t num_floats(const LatentAttentionParams& params) {
    return static_cast<std::size_t>(kTileRows) * params.cache.row_dim +
           static_cast<std::size_t>(kHeadsPerTask) * (params.value_dim + 2);
  }
  Scratch(float* memory, const LatentAttentionParams& params)
      : tile(memory),
        sums(tile + std::int64_t{kTileRows} * params.cache.row_dim),
        maxima(sums + std::int64_t{kHeadsPerTask} * params.value_dim),
        totals(maxima + kHeadsPerTask) {}
};

/// The heads [first_head, end_head) of one query, rows coming in tile by tile.
class Query {
 public:
  Query(const LatentAttentionParams& params, std::int64_t token, std::int32_t first_head, const Scratch& scratch)
      : params_(params),
        token_(token),
        first_head_(first_head),
        num_heads_(std::min(kHeadsPerTask, params.num_heads - first_head)),
        scratch_(scratch) {
    std::fill_n(scratch.sums, std::int64_t{num_heads_} * params.value_dim, 0.0F);
    for (std::int32_t i = 0; i < num_heads_; ++i) {
      // A sink is a key whose value is zero.
      scratch.maxima[i] =
          params.sinks != nullptr ? params.sinks[first_head + i] : -std::numeric_limits<float>::infinity();
      scratch.totals[i] = params.sinks != nullptr ? 1.0F : 0.0F;
    }
  }

  void add(const std::byte* row) {
    dequantize_row(params_.cache.format, row, params_.cache.row_dim, tile_row(num_rows_));
    if (++num_rows_ == kTileRows) attend();
  }

  void finish() {
    if (num_rows_ > 0) attend();
    for (std::int32_t i = 0; i < num_heads_; ++i) {
      float* out = params_.out + (token_ * params_.num_heads + first_head_ + i) * params_.value_dim;
      const float* sums = scratch_.sums + std::int64_t{i} * params_.value_dim;
      for (std::int32_t c = 0; c < params_.value_dim; ++c) out[c] = sums[c] / scratch_.totals[i];
    }
  }

 private:
  float* tile_row(std::int32_t row) const { return scratch_.tile + std::int64_t{row} * params_.cache.row_dim; }

  void attend() {
    for (std::int32_t i = 0; i < num_heads_; ++i) attend_head(i);
    num_rows_ = 0;
  }

  void attend_head(std::int32_t i) {
    const float* q = params_.q + (token_ * params_.num_heads + first_head_ + i) * params_.cache.row_dim;
    float* sums = scratch_.sums + std::int64_t{i} * params_.value_dim;
    float scores[kTileRows];
    float highest = scratch_.maxima[i];
    for (std::int32_t row = 0; row < num_rows_; ++row) {
      scores[row] = params_.scale * dot(q, tile_row(row), params_.cache.row_dim);
      highest = std::max(highest, scores[row]);
    }
    if (highest > scratch_.maxima[i]) {
      const float shrink = std::exp(scratch_.maxima[i] - highest);
      scratch_.totals[i] *= shrink;
      for (std::int32_t c = 0; c < params_.value_dim; ++c) sums[c] *= shrink;
      scratch_.maxima[i] = highest;
    }
    for (std::int32_t row = 0; row < num_rows_; ++row) {
      const float probability = std::exp(scores[row] - highest);
      scratch_.totals[i] += probability;
      const float* value = tile_row(row);
      for (std::int32_t c = 0; c < params_.value_dim; ++c) sums[c] += probability * value[c];
    }
  }

  const LatentAttentionParams& params_;
  std::int64_t token_;
  std::int32_t first_head_;
  std::int32_t num_heads_;
  Scratch scratch_;
  std::int32_t num_rows_ = 0;  // in the tile
};

void add_window(const LatentAttentionParams& params, std::int64_t token, std::size_t sequence, Query& query) {
  const std::int64_t first_of_step = params.batch.cu_seqlens[sequence];
  const std::int32_t position = params.batch.positions[static_cast<std::size_t>(token)];
  const std::int32_t step_begin = params.batch.positions[static_cast<std::size_t>(first_of_step)];
  const std::int64_t row_bytes = params.cache.row_bytes();
  for (std::int32_t p = std::max(0, position - params.window + 1); p <= position; ++p) {
    query.add(p < step_begin ? params.rings[sequence] + p % params.ring_capacity * row_bytes
                             : params.step_rows + (first_of_step + p - step_begin) * row_bytes);
  }
}

void add_cached(const LatentAttentionParams& params, std::int64_t token, std::size_t sequence, Query& query) {
  const std::span<const std::int32_t> table = block_table(params.batch, sequence);
  if (params.lists == nullptr) {
    const std::int32_t num_visible = params.num_visible[static_cast<std::size_t>(token)];
    for (std::int32_t row = 0; row < num_visible; ++row) query.add(params.cache.row(table, row));
    return;
  }
  const std::int32_t* list = params.lists + token * params.max_list;
  for (std::int32_t i = 0; i < params.max_list; ++i) {
    if (list[i] >= 0) query.add(params.cache.row(table, list[i]));
  }
}

}  // namespace

void write_rows(device::Stream& stream, const PagedRows& cache, const PagedBatch& batch, const float* x) {
  constexpr std::int64_t kTokensPerTask = 16;
  const auto num_tokens = static_cast<std::int64_t>(batch.positions.size());
  stream.threads->parallel_for((num_tokens + kTokensPerTask - 1) / kTokensPerTask, [&](std::int64_t task, int) {
    const std::int64_t end = std::min(num_tokens, (task + 1) * kTokensPerTask);
    for (std::int64_t token = task * kTokensPerTask; token < end; ++token) {
      const std::int32_t position = batch.positions[static_cast<std::size_t>(token)];
      std::byte* row = cache.row(block_table(batch, sequence_of(batch, token)), position);
      quantize_row(cache.format, x + token * cache.row_dim, cache.row_dim, row);
    }
  });
}

void latent_attention(device::Stream& stream, const LatentAttentionParams& params) {
  const auto num_tokens = static_cast<std::int64_t>(params.batch.positions.size());
  if (num_tokens == 0) return;
  CHECK_LE(params.value_dim, params.cache.row_dim);
  CHECK(params.window == 0 || params.ring_capacity >= params.window - 1);
  const std::size_t floats_per_thread = Scratch::num_floats(params);
  auto* memory = reinterpret_cast<float*>(stream.threads->scratch(
      device::ScratchSlot::kAttention,
      floats_per_thread * sizeof(float) * static_cast<std::size_t>(stream.threads->num_threads())));
  const std::int64_t groups = (params.num_heads + kHeadsPerTask - 1) / kHeadsPerTask;
  stream.threads->parallel_for(num_tokens * groups, [&](std::int64_t task, int thread) {
    const Scratch scratch(memory + floats_per_thread * static_cast<std::size_t>(thread), params);
    const std::int64_t token = task / groups;
    const std::size_t sequence = sequence_of(params.batch, token);
    Query query(params, token, static_cast<std::int32_t>(task % groups) * kHeadsPerTask, scratch);
    if (params.window > 0) add_window(params, token, sequence, query);
    if (!params.num_visible.empty()) add_cached(params, token, sequence, query);
    query.finish();
  });
}

}  // namespace thalweg::kernels
