#include "models/deepseek_v4/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/thread_pool.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/index/index.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "layers/norm.h"
#include "models/kv_layers.h"

namespace thalweg::models::deepseek_v4 {
namespace {

device::Buffer floats(std::int64_t count) { return device::Buffer(static_cast<std::size_t>(count) * sizeof(float)); }

void project(device::Stream& stream, const kernels::LinearWeight& weight, std::int64_t num_tokens, const float* x,
             float* out) {
  kernels::linear(stream, {.x = x,
                           .x_stride = weight.num_cols(),
                           .num_tokens = num_tokens,
                           .weight = &weight,
                           .out = out,
                           .out_stride = weight.num_rows()});
}

/// The last rope_dim channels of each head.
void rotate(device::Stream& stream, std::int64_t num_tokens, std::int32_t num_heads, std::int32_t head_dim,
            std::int32_t rope_dim, const float* cos_sin, float* x) {
  kernels::rope(stream, {.x = x + head_dim - rope_dim,
                         .x_stride = std::int64_t{num_heads} * head_dim,
                         .num_tokens = num_tokens,
                         .num_heads = num_heads,
                         .head_dim = head_dim,
                         .rope_dim = rope_dim,
                         .pairing = kernels::RopePairing::kInterleaved,
                         .cos_sin = cos_sin});
}

template <typename RingOf>
std::vector<Ring> rings_of(const step::BatchView& batch, RingOf ring_of) {
  std::vector<Ring> rings;
  for (const std::int32_t slot : batch.slots) rings.push_back(ring_of(slot));
  return rings;
}

void make_queries(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch) {
  const AttentionShape& shape = params.config->attention;
  const std::int64_t num_tokens = params.batch->num_tokens();
  project(stream, params.weights->q_down, num_tokens, params.x, scratch.bottleneck());
  layers::norm(stream, params.weights->q_norm, num_tokens, scratch.bottleneck(), scratch.bottleneck());
  project(stream, params.weights->q_up, num_tokens, scratch.bottleneck(), scratch.q());
  kernels::rms_norm(stream, {.x = scratch.q(),
                             .x_stride = shape.head_dim,
                             .num_rows = num_tokens * shape.num_heads,
                             .num_cols = shape.head_dim,
                             .epsilon = params.config->decoder.norm_epsilon,
                             .out = scratch.q(),
                             .out_stride = shape.head_dim});
  rotate(stream, num_tokens, shape.num_heads, shape.head_dim, shape.rope_dim, params.rotation->forth(), scratch.q());
}

/// The step's rows, in the cache's format.
void make_rows(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch) {
  const AttentionShape& shape = params.config->attention;
  const std::int64_t num_tokens = params.batch->num_tokens();
  project(stream, params.weights->kv, num_tokens, params.x, scratch.kv());
  layers::norm(stream, params.weights->kv_norm, num_tokens, scratch.kv(), scratch.kv());
  rotate(stream, num_tokens, 1, shape.head_dim, shape.rope_dim, params.rotation->forth(), scratch.kv());
  const kernels::QuantFormat format = params.layout->format();
  kernels::quantize_row(format, scratch.kv(), num_tokens * shape.head_dim, scratch.rows());
}

void compress_step(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch) {
  const CacheLayout& layout = *params.layout;
  const auto one = [&](const CompressorWeights& weights, std::span<const Ring> open, const kernels::PagedRows& cache) {
    compress(stream, {.weights = &weights,
                      .groups = params.groups,
                      .batch = params.batch,
                      .open = open,
                      .cache = cache,
                      .rope_dim = params.config->attention.rope_dim,
                      .x = params.x,
                      .value_gate = scratch.value_gate(),
                      .entries = scratch.entries()});
  };
  one(*params.weights->compressor,
      rings_of(*params.batch,
               [&](std::int32_t slot) { return layout.open_entries(*params.cache, params.layer, slot); }),
      layout.entries(*params.cache, params.layer));
  if (!params.weights->index) return;
  one(params.weights->index->compressor,
      rings_of(*params.batch,
               [&](std::int32_t slot) { return layout.open_index_keys(*params.cache, params.layer, slot); }),
      layout.index_keys(*params.cache, params.layer));
}

/// The entries that each query attends to.
void choose_entries(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch) {
  const IndexShape& shape = params.config->index;
  const IndexWeights& index = *params.weights->index;
  const std::int64_t num_tokens = params.batch->num_tokens();
  project(stream, index.q, num_tokens, scratch.bottleneck(), scratch.index_q());
  rotate(stream, num_tokens, shape.num_heads, shape.head_dim, params.config->attention.rope_dim,
         params.rotation->forth(), scratch.index_q());
  project(stream, index.head_weights, num_tokens, params.x, scratch.index_weights());
  // The scale of the scores does not change their order: the 1 / sqrt of heads and channels is left out.
  kernels::index_select(stream, {.q = scratch.index_q(),
                                 .weights = scratch.index_weights(),
                                 .num_heads = shape.num_heads,
                                 .head_dim = shape.head_dim,
                                 .keys = params.layout->index_keys(*params.cache, params.layer).entries(),
                                 .cu_seqlens = params.batch->cu_seqlens,
                                 .block_tables = params.batch->block_tables,
                                 .max_blocks_per_row = params.batch->max_blocks_per_row,
                                 .num_visible = params.groups->num_visible(),
                                 .top_k = shape.top_k,
                                 .lists = scratch.lists()});
}

void attend(device::Stream& stream, const AttentionParams& params, std::span<const Ring> windows,
            AttentionScratch& scratch) {
  const AttentionShape& shape = params.config->attention;
  const bool has_entries = params.groups != nullptr;
  std::vector<const std::byte*> ring_rows;
  for (const Ring& ring : windows) ring_rows.push_back(ring.rows);
  kernels::latent_attention(
      stream, {.q = scratch.q(),
               .num_heads = shape.num_heads,
               .value_dim = shape.head_dim,
               .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
               .sinks = params.weights->sinks.data(),
               .batch = paged_batch(*params.batch),
               .cache = params.layout->entries(*params.cache, params.layer),
               .num_visible = has_entries ? params.groups->num_visible() : std::span<const std::int32_t>(),
               .lists = params.weights->index ? scratch.lists() : nullptr,
               .max_list = params.config->index.top_k,
               .window = shape.window,
               .step_rows = scratch.rows(),
               .rings = ring_rows,
               .ring_capacity = windows.empty() ? 0 : windows.front().capacity,
               .out = scratch.attended()});
}

/// Only the newest stay; older ones of a long step would be overwritten.
void remember_rows(device::Stream& stream, const step::BatchView& batch, std::span<const Ring> windows,
                   const std::byte* rows) {
  stream.threads->parallel_for(batch.num_rows(), [&](std::int64_t row, int) {
    const Ring& ring = windows[static_cast<std::size_t>(row)];
    const std::int32_t end = batch.cu_seqlens[static_cast<std::size_t>(row) + 1];
    const std::int32_t begin = std::max(batch.cu_seqlens[static_cast<std::size_t>(row)], end - ring.capacity);
    for (std::int32_t token = begin; token < end; ++token) {
      std::memcpy(ring.row(batch.positions[static_cast<std::size_t>(token)]), rows + token * ring.row_bytes,
                  static_cast<std::size_t>(ring.row_bytes));
    }
  });
}

void project_out(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch) {
  const AttentionShape& shape = params.config->attention;
  const std::int64_t num_tokens = params.batch->num_tokens();
  rotate(stream, num_tokens, shape.num_heads, shape.head_dim, shape.rope_dim, params.rotation->back(),
         scratch.attended());
  for (std::int32_t group = 0; group < shape.num_output_groups; ++group) {
    kernels::linear(stream, {.x = scratch.attended() + group * shape.group_size(),
                             .x_stride = shape.q_size(),
                             .num_tokens = num_tokens,
                             .weight = &params.weights->out_a[static_cast<std::size_t>(group)],
                             .out = scratch.grouped() + std::int64_t{group} * shape.output_lora_rank,
                             .out_stride = std::int64_t{shape.num_output_groups} * shape.output_lora_rank});
  }
  project(stream, params.weights->out_b, num_tokens, scratch.grouped(), params.out);
}

}  // namespace

void Rotation::reserve(std::int64_t max_tokens, std::int32_t rope_dim) {
  rope_dim_ = rope_dim;
  forth_ = floats(max_tokens * rope_dim);
  back_ = floats(max_tokens * rope_dim);
}

void Rotation::begin(device::Stream& stream, const kernels::RopeFrequencies& frequencies,
                     std::span<const std::int32_t> positions) {
  kernels::rope_table(stream, frequencies, positions, forth_.as<float>());
  const std::int64_t half = rope_dim_ / 2;
  for (std::size_t token = 0; token < positions.size(); ++token) {
    const float* forth = forth_.as<float>() + static_cast<std::int64_t>(token) * rope_dim_;
    float* back = back_.as<float>() + static_cast<std::int64_t>(token) * rope_dim_;
    std::copy_n(forth, half, back);
    std::transform(forth + half, forth + 2 * half, back + half, [](float sine) { return -sine; });
  }
}

AttentionScratch::AttentionScratch(std::int64_t max_tokens, const Config& config, const CacheLayout& layout)
    : bottleneck_(floats(max_tokens * config.attention.q_lora_rank)),
      q_(floats(max_tokens * config.attention.q_size())),
      attended_(floats(max_tokens * config.attention.q_size())),
      grouped_(floats(max_tokens * config.attention.num_output_groups * config.attention.output_lora_rank)),
      kv_(floats(max_tokens * config.attention.head_dim)),
      rows_(
          static_cast<std::size_t>(kernels::quant_row_bytes(layout.format(), max_tokens * config.attention.head_dim))),
      value_gate_(floats(max_tokens * 4 * std::max(config.attention.head_dim, config.index.head_dim))),
      entries_(floats(max_tokens * std::max(config.attention.head_dim, config.index.head_dim))),
      index_q_(floats(max_tokens * config.index.num_heads * config.index.head_dim)),
      index_weights_(floats(max_tokens * config.index.num_heads)),
      lists_(static_cast<std::size_t>(max_tokens * config.index.top_k) * sizeof(std::int32_t)) {}

void attention(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch) {
  const std::vector<Ring> windows = rings_of(
      *params.batch, [&](std::int32_t slot) { return params.layout->window(*params.cache, params.layer, slot); });
  make_queries(stream, params, scratch);
  make_rows(stream, params, scratch);
  if (params.weights->compressor) compress_step(stream, params, scratch);
  if (params.weights->index) choose_entries(stream, params, scratch);
  attend(stream, params, windows, scratch);
  remember_rows(stream, *params.batch, windows, scratch.rows());
  project_out(stream, params, scratch);
}

}  // namespace thalweg::models::deepseek_v4
