#include "models/deepseek_v4/compressor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/thread_pool.h"
#include "kernels/linear/linear.h"
#include "layers/norm.h"

namespace thalweg::models::deepseek_v4 {
namespace {

constexpr std::int32_t kMaxSlots = std::max(2 * kSparseRatio, kHeavyRatio);

/// What each token of the step contributes: its values, and its gates with the bias of its place.
void project_tokens(device::Stream& stream, const CompressParams& params) {
  const CompressorWeights& weights = *params.weights;
  const std::int64_t num_tokens = params.batch->num_tokens();
  kernels::linear(stream, {.x = params.x,
                           .x_stride = weights.value_gate.num_cols(),
                           .num_tokens = num_tokens,
                           .weight = &weights.value_gate,
                           .out = params.value_gate,
                           .out_stride = weights.value_gate.num_rows()});
  const std::int64_t width = weights.width();
  stream.threads->parallel_for(num_tokens, [&](std::int64_t token, int) {
    const std::int32_t position = params.batch->positions[static_cast<std::size_t>(token)];
    const float* bias = weights.position_bias.data() + position % weights.ratio * width;
    float* gates = params.value_gate + token * 2 * width + width;
    for (std::int64_t c = 0; c < width; ++c) gates[c] += bias[c];
  });
}

/// The contribution of the token at `position` of a row: values, then gates.
const float* contribution(const CompressParams& params, std::size_t row, std::int32_t position) {
  const std::int64_t first_token = params.batch->cu_seqlens[row];
  const std::int32_t first = params.batch->positions[static_cast<std::size_t>(first_token)];
  if (position < first) return reinterpret_cast<const float*>(params.open[row].row(position));
  return params.value_gate + (first_token + position - first) * 2 * params.weights->width();
}

/// Softmax over the slots of one channel, weighting their values. A slot: values, and gates `width` behind them.
float pool(std::span<const float* const> slots, std::int64_t channel, std::int64_t width) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float* slot : slots) highest = std::max(highest, slot[width + channel]);
  float total = 0.0F;
  float sum = 0.0F;
  for (const float* slot : slots) {
    const float weight = std::exp(slot[width + channel] - highest);
    total += weight;
    sum += weight * slot[channel];
  }
  return sum / total;
}

void pool_group(const CompressParams& params, const CompletedGroups::Group& group, float* entry) {
  const CompressorWeights& weights = *params.weights;
  const auto row = static_cast<std::size_t>(group.row);
  const float* slots[kMaxSlots];
  std::size_t num_slots = 0;
  // Where entries overlap, a token's first channels are for the entry after its own, the second half for its own.
  if (weights.overlaps && group.first > 0) {
    for (std::int32_t p = group.first - weights.ratio; p < group.first; ++p) {
      slots[num_slots++] = contribution(params, row, p);
    }
  }
  const std::int64_t own = weights.overlaps ? weights.dim : 0;
  for (std::int32_t p = group.first; p < group.first + weights.ratio; ++p) {
    slots[num_slots++] = contribution(params, row, p) + own;
  }
  for (std::int64_t c = 0; c < weights.dim; ++c) entry[c] = pool({slots, num_slots}, c, weights.width());
}

/// Only the newest stay; older ones of a long step would be overwritten.
void remember(device::Stream& stream, const CompressParams& params) {
  const step::BatchView& batch = *params.batch;
  const std::int64_t row_floats = 2 * params.weights->width();
  stream.threads->parallel_for(batch.num_rows(), [&](std::int64_t row, int) {
    const Ring& ring = params.open[static_cast<std::size_t>(row)];
    const std::int32_t end = batch.cu_seqlens[static_cast<std::size_t>(row) + 1];
    const std::int32_t begin = std::max(batch.cu_seqlens[static_cast<std::size_t>(row)], end - ring.capacity);
    for (std::int32_t token = begin; token < end; ++token) {
      std::memcpy(ring.row(batch.positions[static_cast<std::size_t>(token)]), params.value_gate + token * row_floats,
                  static_cast<std::size_t>(ring.row_bytes));
    }
  });
}

}  // namespace

void CompletedGroups::reserve(std::int64_t max_tokens, std::int32_t ratio, std::int32_t rope_dim) {
  ratio_ = ratio;
  cos_sin_ = device::Buffer(static_cast<std::size_t>(max_tokens * rope_dim) * sizeof(float));
}

void CompletedGroups::begin(device::Stream& stream, const step::BatchView& batch,
                            const kernels::RopeFrequencies& frequencies) {
  groups_.clear();
  positions_.clear();
  num_visible_.clear();
  for (std::int32_t row = 0; row < batch.num_rows(); ++row) {
    const std::int32_t cached = batch.cached_lens.empty() ? 0 : batch.cached_lens[static_cast<std::size_t>(row)];
    for (std::int32_t token = batch.cu_seqlens[static_cast<std::size_t>(row)];
         token < batch.cu_seqlens[static_cast<std::size_t>(row) + 1]; ++token) {
      const std::int32_t next = batch.positions[static_cast<std::size_t>(token)] + 1;
      num_visible_.push_back(next / ratio_);
      if (next % ratio_ != 0) continue;
      groups_.push_back({.row = row, .first = next - ratio_, .is_written = next > cached});
      positions_.push_back(next - ratio_);
    }
  }
  kernels::rope_table(stream, frequencies, positions_, cos_sin_.as<float>());
}

void compress(device::Stream& stream, const CompressParams& params) {
  const CompressorWeights& weights = *params.weights;
  const std::span<const CompletedGroups::Group> groups = params.groups->groups();
  const auto num_groups = static_cast<std::int64_t>(groups.size());
  project_tokens(stream, params);
  stream.threads->parallel_for(num_groups, [&](std::int64_t i, int) {
    pool_group(params, groups[static_cast<std::size_t>(i)], params.entries + i * weights.dim);
  });
  layers::norm(stream, weights.norm, num_groups, params.entries, params.entries);
  kernels::rope(stream, {.x = params.entries + weights.dim - params.rope_dim,
                         .x_stride = weights.dim,
                         .num_tokens = num_groups,
                         .num_heads = 1,
                         .head_dim = params.rope_dim,
                         .rope_dim = params.rope_dim,
                         .pairing = kernels::RopePairing::kInterleaved,
                         .cos_sin = params.groups->cos_sin()});
  const auto table_size = static_cast<std::size_t>(params.batch->max_blocks_per_row);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].is_written) continue;
    const auto table =
        params.batch->block_tables.subspan(static_cast<std::size_t>(groups[i].row) * table_size, table_size);
    kernels::quantize_row(params.cache.format, params.entries + static_cast<std::int64_t>(i) * weights.dim, weights.dim,
                          params.cache.row(table, groups[i].first / weights.ratio));
  }
  remember(stream, params);
}

}  // namespace thalweg::models::deepseek_v4
