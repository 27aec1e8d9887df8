#include "models/deepseek_v41/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/index/index.h"
#include "kernels/norm/rms_norm.h"
#include "models/deepseek_v41/compressor.h"

namespace thalweg::models::deepseek_v41 {
namespace {

using kernels::QuantFormat;

/// work.x -> work.q_down, normalised, and work.q, rotated.
void query(Pass& pass, const AttentionWeights& weights) {
  Workspace& work = pass.work;
  const std::int64_t num_tokens = pass.num_tokens();
  const float* x =
      activations(pass.stream, pass.rounding, num_tokens, work.x.width(), work.x.data(), work.quantized.data());
  rounded_product(pass.stream, pass.rounding, weights.q_down, num_tokens, x, work.q_down.data());
  layers::norm(pass.stream, weights.q_norm, num_tokens, work.q_down.data(), work.q_down.data());
  round(pass.stream, pass.rounding, work.q_down.data(), num_tokens * work.q_down.width());

  const float* q_down = activations(pass.stream, pass.rounding, num_tokens, work.q_down.width(), work.q_down.data(),
                                    work.quantized.data());
  rounded_product(pass.stream, pass.rounding, weights.q_up, num_tokens, q_down, work.q.data());
  rotate(pass.stream, pass.config, num_tokens, pass.config.num_heads, pass.config.head_dim, work.rotary.data(),
         work.q.data());
  round(pass.stream, pass.rounding, work.q.data(), num_tokens * work.q.width());
}

kernels::CandidateUse candidate_use(const IndexSettings& index, std::int32_t layer) {
  if (index.candidate_source < 0 || layer < index.candidate_source) return kernels::CandidateUse::kNone;
  return layer == index.candidate_source ? kernels::CandidateUse::kChoose : kernels::CandidateUse::kRestrict;
}

/// work.x and work.q_down -> work.lists (sections 3.6 and 3.7).
void choose_entries(Pass& pass, const IndexWeights& weights, const LayerRole& role, std::int32_t layer) {
  Workspace& work = pass.work;
  const IndexSettings& index = pass.config.index;
  const std::int64_t num_tokens = pass.num_tokens();
  const float* q_down = activations(pass.stream, pass.rounding, num_tokens, work.q_down.width(), work.q_down.data(),
                                    work.quantized.data());
  rounded_product(pass.stream, pass.rounding, weights.query, num_tokens, q_down, work.index_q.data());
  rotate(pass.stream, pass.config, num_tokens, index.num_heads, index.head_dim, work.rotary.data(),
         work.index_q.data());
  round(pass.stream, pass.rounding, work.index_q.data(), num_tokens * work.index_q.width());
  kernels::fake_quantize(pass.stream, QuantFormat::kF4Block32, num_tokens, work.index_q.width(), work.index_q.data(),
                         work.index_q.width(), work.index_q.data(), work.index_q.width());

  rounded_product(pass.stream, pass.rounding, weights.head_weights, num_tokens, work.x.data(),
                  work.index_weights.data());
  const float scale = 1.0F / std::sqrt(static_cast<float>(index.num_heads) * static_cast<float>(index.head_dim));
  float* head_weights = work.index_weights.data();
  for (std::int64_t i = 0; i < num_tokens * index.num_heads; ++i) head_weights[i] *= scale;

  const std::span<const std::int32_t> positions = pass.rows.batch().positions;
  for (std::size_t t = 0; t < positions.size(); ++t) work.num_visible[t] = (positions[t] + 1) / role.ratio;
  kernels::IndexParams params{
      .q = work.index_q.data(),
      .weights = head_weights,
      .num_heads = index.num_heads,
      .head_dim = index.head_dim,
      .keys = pass.layout.index_keys(pass.cache, role.kv_owner),
      .cu_seqlens = pass.rows.batch().cu_seqlens,
      .block_tables = pass.batch.block_tables,
      .max_blocks_per_row = pass.batch.max_blocks_per_row,
      .num_visible = std::span(work.num_visible).first(positions.size()),
      .use = candidate_use(index, layer),
      .candidates = {.block_size = index.candidate_block_size,
                     .max_blocks = index.max_candidate_blocks,
                     .blocks = work.candidates.data()},
      .top_k = index.top_k,
      .lists = work.lists.data(),
  };
  std::vector<float> scores;
  if (pass.tap != nullptr && *pass.tap && !positions.empty()) {
    params.scores_stride = std::max(1, *std::ranges::max_element(params.num_visible));
    scores.resize(positions.size() * static_cast<std::size_t>(params.scores_stride));
    params.scores = scores.data();
  }
  kernels::index_select(pass.stream, params);
  if (!scores.empty()) pass.show(layer, "index_scores", num_tokens, params.scores_stride, scores.data());
  pass.show(layer, "topk", std::span(work.lists).first(static_cast<std::size_t>(num_tokens * index.top_k)),
            index.top_k);
}

kernels::SparseAttentionParams attention_params(Pass& pass, const AttentionWeights& weights,
                                                std::span<const kernels::WindowRing> rings) {
  const Config& config = pass.config;
  return {.q = pass.work.q.data(),
          .num_heads = config.num_heads,
          .head_dim = config.head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
          .sinks = weights.sinks.data(),
          .positions = pass.rows.batch().positions,
          .cu_seqlens = pass.rows.batch().cu_seqlens,
          .window = config.window,
          .rings = rings,
          .ring_capacity = pass.layout.ring_capacity(),
          .step_rows = pass.work.step_rows.data(),
          .rounds_bf16 = pass.rounding.rounds_bf16,
          .out = pass.work.attended.data()};
}

/// work.attended -> work.out: turned back, then the groups' low-rank projection (section 3.8).
void project_out(Pass& pass, const AttentionWeights& weights) {
  Workspace& work = pass.work;
  const Config& config = pass.config;
  const std::int64_t num_tokens = pass.num_tokens();
  rotate(pass.stream, config, num_tokens, config.num_heads, config.head_dim, work.inverse_rotary.data(),
         work.attended.data());
  round(pass.stream, pass.rounding, work.attended.data(), num_tokens * work.attended.width());
  for (std::int32_t g = 0; g < config.num_output_groups; ++g) {
    kernels::linear(pass.stream, {.x = work.attended.data() + std::int64_t{g} * config.rows_per_group(),
                                  .x_stride = work.attended.width(),
                                  .num_tokens = num_tokens,
                                  .weight = &weights.out_a[static_cast<std::size_t>(g)],
                                  .out = work.grouped.data() + std::int64_t{g} * config.output_lora_rank,
                                  .out_stride = work.grouped.width()});
  }
  round(pass.stream, pass.rounding, work.grouped.data(), num_tokens * work.grouped.width());
  const float* grouped = activations(pass.stream, pass.rounding, num_tokens, work.grouped.width(), work.grouped.data(),
                                     work.quantized.data());
  rounded_product(pass.stream, pass.rounding, weights.out_b, num_tokens, grouped, work.out.data());
}

}  // namespace

void make_window_rows(Pass& pass, const AttentionWeights& weights, std::int64_t num_rows, const float* x,
                      const float* rotary, std::byte* rows) {
  Workspace& work = pass.work;
  const std::int32_t head_dim = pass.config.head_dim;
  float* kv = work.kv.data();
  const float* input =
      activations(pass.stream, pass.rounding, num_rows, pass.config.hidden_size, x, work.quantized.data());
  rounded_product(pass.stream, pass.rounding, weights.kv, num_rows, input, kv);
  layers::norm(pass.stream, weights.kv_norm, num_rows, kv, kv);
  round(pass.stream, pass.rounding, kv, num_rows * head_dim);
  rotate(pass.stream, pass.config, num_rows, 1, head_dim, rotary, kv);
  round(pass.stream, pass.rounding, kv, num_rows * head_dim);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    kernels::quantize_row(QuantFormat::kF8Block32, kv + i * head_dim, head_dim, rows + i * pass.layout.row_bytes());
  }
}

void store_window_rows(Pass& pass, std::int32_t layer, std::span<const std::int32_t> cu_seqlens,
                       const std::byte* rows) {
  const std::int32_t capacity = pass.layout.ring_capacity();
  const std::int64_t row_bytes = pass.layout.row_bytes();
  for (std::size_t row = 0; row + 1 < cu_seqlens.size(); ++row) {
    std::byte* ring = pass.layout.ring(pass.cache, pass.batch.slots[row], layer);
    const std::int32_t end = pass.batch.context_lens[row];
    const std::int32_t count = std::min(cu_seqlens[row + 1] - cu_seqlens[row], capacity);
    for (std::int32_t i = count; i > 0; --i) {
      std::memcpy(ring + (end - i) % capacity * row_bytes, rows + (cu_seqlens[row + 1] - i) * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
  }
}

void write_attention(Pass& pass, const AttentionWeights& weights, const LayerRole& role, std::int32_t layer,
                     Windows& windows) {
  use_rotary(pass, role.ratio);
  make_window_rows(pass, weights, pass.num_tokens(), pass.work.x.data(), pass.work.rotary.data(),
                   pass.work.step_rows.data());
  const std::span<const std::int32_t> cu_seqlens = pass.rows.batch().cu_seqlens;
  windows.step_cu_seqlens.assign(cu_seqlens.begin(), cu_seqlens.end());
  windows.rings.clear();
  for (const std::int32_t slot : pass.batch.slots) {
    const StateHeader& header = pass.layout.header(pass.cache, slot);
    windows.rings.push_back(
        {.rows = pass.layout.ring(pass.cache, slot, layer),
         .begin = layer <= pass.config.decoder_begin() ? header.encoder_begin : header.decoder_begin});
  }
  if (role.kv_owner == layer) compress(pass, *weights.compressor, role.ratio, layer);
}

void read_attention(Pass& pass, const AttentionWeights& weights, const LayerRole& role, std::int32_t layer,
                    const Windows& windows) {
  use_rotary(pass, role.ratio);
  query(pass, weights);
  if (role.index_owner == layer) choose_entries(pass, *weights.index, role, layer);

  kernels::SparseAttentionParams params = attention_params(pass, weights, windows.rings);
  params.step_cu_seqlens = windows.step_cu_seqlens;
  if (role.ratio > 0) {
    params.entries = pass.layout.entries(pass.cache, role.kv_owner);
    params.block_tables = pass.batch.block_tables;
    params.max_blocks_per_row = pass.batch.max_blocks_per_row;
    params.lists = pass.work.lists.data();
    params.max_list = pass.config.index.top_k;
  }
  kernels::sparse_attention(pass.stream, params);
  pass.show(layer, "attn_core", pass.num_tokens(), pass.work.attended.width(), pass.work.attended.data());
  store_window_rows(pass, layer, windows.step_cu_seqlens, pass.work.step_rows.data());
  project_out(pass, weights);
}

void draft_attention(Pass& pass, const AttentionWeights& weights, std::span<const kernels::WindowRing> rings) {
  use_rotary(pass, 0);
  make_window_rows(pass, weights, pass.num_tokens(), pass.work.x.data(), pass.work.rotary.data(),
                   pass.work.step_rows.data());
  query(pass, weights);
  kernels::SparseAttentionParams params = attention_params(pass, weights, rings);
  params.sees_whole_step = true;
  kernels::sparse_attention(pass.stream, params);
  project_out(pass, weights);
}

}  // namespace thalweg::models::deepseek_v41
