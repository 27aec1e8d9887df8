#include "models/deepseek_v41/dspark.h"

#include <cmath>

#include "base/check.h"
#include "models/deepseek_v41/block.h"

namespace thalweg::models::deepseek_v41 {

Dspark::Dspark(const Config& config, const Weights& weights, const CacheLayout& layout, const Frequencies& frequencies,
               Rounding rounding)
    : config_(config), weights_(weights), layout_(layout), frequencies_(frequencies), rounding_(rounding) {}

void Dspark::remember(Backbone& backbone) {
  Pass& pass = backbone.pass();
  const std::int64_t num_tokens = pass.num_tokens();
  if (num_tokens == 0) return;
  const DsparkWeights& weights = *weights_.dspark;
  Rows& taps = backbone.taps();
  float* x = pass.work.x.data();
  round(pass.stream, rounding_, taps.data(), num_tokens * taps.width());
  const float* input =
      activations(pass.stream, rounding_, num_tokens, taps.width(), taps.data(), pass.work.quantized.data());
  rounded_product(pass.stream, rounding_, weights.input, num_tokens, input, x);
  layers::norm(pass.stream, weights.input_norm, num_tokens, x, x);
  round(pass.stream, rounding_, x, num_tokens * config_.hidden_size);
  pass.show(config_.num_layers, "main_x", num_tokens, config_.hidden_size, x);
  use_rotary(pass, 0);
  for (std::int32_t n = 0; n < config_.dspark.num_stages; ++n) {
    make_window_rows(pass, weights.stages[static_cast<std::size_t>(n)].attention, num_tokens, x,
                     pass.work.rotary.data(), pass.work.step_rows.data());
    store_window_rows(pass, config_.num_layers + n, pass.rows.batch().cu_seqlens, pass.work.step_rows.data());
  }
}

void Dspark::reserve(std::int32_t max_queries) {
  const std::int64_t max_tokens = std::int64_t{max_queries} * block_size();
  work_ = Workspace(config_, layout_, max_tokens);
  collapsed_ = Rows(max_tokens, config_.hidden_size);
  base_logits_ = Rows(max_tokens, config_.vocab_size);
  markov_ = Rows(max_queries, config_.dspark.markov_rank);
  biases_ = Rows(max_queries, config_.vocab_size);
}

/// The anchor, then noise (section 7.3).
void Dspark::fill_batch(std::span<const DraftQuery> queries) {
  token_ids_.clear();
  positions_.clear();
  cu_seqlens_.assign(1, 0);
  context_lens_.clear();
  slots_.clear();
  for (const DraftQuery& query : queries) {
    for (std::int32_t i = 0; i < block_size(); ++i) {
      token_ids_.push_back(i == 0 ? query.anchor : config_.dspark.noise_token_id);
      positions_.push_back(query.position + i);
    }
    cu_seqlens_.push_back(static_cast<std::int32_t>(token_ids_.size()));
    context_lens_.push_back(query.position + block_size());
    slots_.push_back(query.slot);
  }
}

void Dspark::begin(device::Stream& stream, std::span<const DraftQuery> queries, const CacheMemory& cache) {
  const DsparkWeights& weights = *weights_.dspark;
  fill_batch(queries);
  Pass pass{.stream = stream,
            .config = config_,
            .layout = layout_,
            .frequencies = frequencies_,
            .rounding = rounding_,
            .work = work_,
            .batch = {.token_ids = token_ids_,
                      .positions = positions_,
                      .cu_seqlens = cu_seqlens_,
                      .context_lens = context_lens_,
                      .block_tables = {},
                      .slots = slots_,
                      .logit_tokens = {}},
            .cache = cache,
            .tap = tap_,
            .rows = {}};
  pass.rows.begin({positions_, cu_seqlens_, context_lens_, {}, 0});
  embed(pass, weights_.vocabulary, token_ids_);
  std::vector<kernels::WindowRing> rings(queries.size());
  for (std::int32_t n = 0; n < config_.dspark.num_stages; ++n) {
    for (std::size_t i = 0; i < queries.size(); ++i) {
      rings[i] = {.rows = layout_.ring(cache, queries[i].slot, config_.num_layers + n),
                  .begin = layout_.header(cache, queries[i].slot).decoder_begin};
    }
    run_stage(pass, n, rings);
  }

  const std::int64_t num_tokens = pass.num_tokens();
  collapse(pass, num_tokens, work_.streams.data(), work_.pre.data(), nullptr, collapsed_.data());
  layers::norm(stream, weights.norm, num_tokens, collapsed_.data(), work_.x.data());
  round(stream, rounding_, work_.x.data(), num_tokens * config_.hidden_size);
  layers::unembed(stream, weights_.vocabulary, num_tokens, work_.x.data(), base_logits_.data());
  pass.show(config_.num_layers + config_.dspark.num_stages, "base_logits", num_tokens, config_.vocab_size,
            base_logits_.data());
}

void Dspark::run_stage(Pass& pass, std::int32_t stage, std::span<const kernels::WindowRing> rings) {
  const BlockWeights& block = weights_.dspark->stages[static_cast<std::size_t>(stage)];
  begin_sublayer(pass, block.attention_mix, block.attention_norm, work_.pre.data(), work_.next_pre.data());
  draft_attention(pass, block.attention, rings);
  end_sublayer(pass);
  begin_sublayer(pass, block.feed_forward_mix, block.feed_forward_norm, work_.next_pre.data(), work_.pre.data());
  run_experts(pass, block.experts, config_.dspark.experts, config_.num_layers + stage);
  end_sublayer(pass);
  pass.show(config_.num_layers + stage, "X", pass.num_tokens(), work_.streams.width(), work_.streams.data());
}

void Dspark::next(device::Stream& stream, std::int32_t i, std::span<const std::int32_t> previous, float* logits,
                  float* confidences) {
  CHECK(i >= 0 && i < block_size());
  const DsparkWeights& weights = *weights_.dspark;
  const auto num_queries = static_cast<std::int64_t>(previous.size());
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t rank = config_.dspark.markov_rank;
  const std::int64_t vocab_size = config_.vocab_size;
  kernels::embedding(stream, weights.markov_embedding, previous, 1.0F, markov_.data());
  product(stream, weights.markov_head, num_queries, markov_.data(), biases_.data());
  for (std::int64_t q = 0; q < num_queries; ++q) {
    const std::int64_t row = q * block_size() + i;
    const float* base = base_logits_.data() + row * vocab_size;
    const float* bias = biases_.data() + q * vocab_size;
    for (std::int64_t v = 0; v < vocab_size; ++v) logits[q * vocab_size + v] = base[v] + bias[v];

    const float* collapsed = collapsed_.data() + row * hidden;
    float logit = 0.0F;
    for (std::int64_t c = 0; c < hidden; ++c) logit += weights.confidence[static_cast<std::size_t>(c)] * collapsed[c];
    for (std::int64_t c = 0; c < rank; ++c) {
      logit += weights.confidence[static_cast<std::size_t>(hidden + c)] * markov_.data()[q * rank + c];
    }
    confidences[q] = 1.0F / (1.0F + std::exp(-logit));
  }
}

}  // namespace thalweg::models::deepseek_v41
