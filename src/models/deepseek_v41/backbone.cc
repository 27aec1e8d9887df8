#include "models/deepseek_v41/backbone.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/deepseek_v41/block.h"

namespace thalweg::models::deepseek_v41 {

Backbone::Backbone(const Config& config, const Weights& weights, const CacheLayout& layout, Rounding rounding,
                   std::vector<std::int32_t> classes)
    : config_(config),
      weights_(weights),
      layout_(layout),
      rounding_(rounding),
      frequencies_(config),
      roles_(layer_roles(config)),
      classes_(std::move(classes)) {
  if (config.engram.hash.layer_ids.empty()) return;
  kernels::EngramConfig hash = config.engram.hash;
  hash.pad_class = classes_[static_cast<std::size_t>(config.engram.pad_token_id)];
  hashes_ = kernels::make_engram_hashes(hash);
}

void Backbone::reserve(std::int64_t max_tokens) {
  work_ = Workspace(config_, layout_, max_tokens);
  if (weights_.dspark) {
    taps_ = Rows(max_tokens, static_cast<std::int64_t>(config_.dspark.target_layers.size()) * config_.hidden_size);
  }
}

void Backbone::begin(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache,
                     const ActivationTap* tap) {
  pass_.emplace(Pass{.stream = stream,
                     .config = config_,
                     .layout = layout_,
                     .frequencies = frequencies_,
                     .rounding = rounding_,
                     .work = work_,
                     .batch = batch,
                     .cache = cache,
                     .tap = tap,
                     .rows = {}});
  pass_->rows.begin(
      {batch.positions, batch.cu_seqlens, batch.context_lens, batch.block_tables, batch.max_blocks_per_row});
  tokens_left_.resize(static_cast<std::size_t>(batch.num_tokens()));
  std::iota(tokens_left_.begin(), tokens_left_.end(), 0);
  begin_slots();
  embed(*pass_, weights_.vocabulary, batch.token_ids);
}

/// The windows of a sequence begin where its computing does. Whoever goes further back than the rings remember would
/// read rows of other positions.
void Backbone::begin_slots() {
  const step::BatchView& batch = pass_->batch;
  for (std::size_t row = 0; row < batch.slots.size(); ++row) {
    if (batch.cu_seqlens[row] == batch.cu_seqlens[row + 1]) continue;
    StateHeader& header = layout_.header(pass_->cache, batch.slots[row]);
    const std::int32_t first = batch.positions[static_cast<std::size_t>(batch.cu_seqlens[row])];
    if (header.is_begun == 0) {
      header = {.is_begun = 1,
                .encoder_begin = first,
                .decoder_begin = batch.full_from.empty() ? first : std::max(first, batch.full_from[row])};
    }
    CHECK_GE(first, header.end - layout_.max_draft_tokens());
    header.end = batch.context_lens[row];
  }
}

void Backbone::layer(std::int32_t index) {
  Pass& pass = *pass_;
  const BlockWeights& block = weights_.blocks[static_cast<std::size_t>(index)];
  const LayerRole& role = roles_[static_cast<std::size_t>(index)];
  if (pass.num_tokens() == 0) return;
  take_tap(index);
  if (role.engram >= 0) {
    const auto table = static_cast<std::size_t>(role.engram);
    add_engram(pass, weights_.engrams[table], hashes_[table], classes_, index);
  }

  begin_sublayer(pass, block.attention_mix, block.attention_norm, work_.pre.data(), work_.next_pre.data());
  pass.show(index, "attn_in", pass.num_tokens(), work_.x.width(), work_.x.data());
  write_attention(pass, block.attention, role, index, windows_);
  if (index == config_.decoder_begin()) drop_tokens(windows_);
  if (pass.num_tokens() == 0) return;
  read_attention(pass, block.attention, role, index, windows_);
  pass.show(index, "attn_out", pass.num_tokens(), work_.out.width(), work_.out.data());
  end_sublayer(pass);

  begin_sublayer(pass, block.feed_forward_mix, block.feed_forward_norm, work_.next_pre.data(), work_.pre.data());
  pass.show(index, "ffn_in", pass.num_tokens(), work_.x.width(), work_.x.data());
  run_experts(pass, block.experts, config_.experts, index);
  pass.show(index, "ffn_out", pass.num_tokens(), work_.out.width(), work_.out.data());
  end_sublayer(pass);
  pass.show(index, "X", pass.num_tokens(), work_.streams.width(), work_.streams.data());
  pass.show(index, "pre", pass.num_tokens(), work_.pre.width(), work_.pre.data());
}

/// Bounded replay (section 4.2): tokens before full_from have left everything that later ones read.
void Backbone::drop_tokens(Windows& windows) {
  Pass& pass = *pass_;
  if (pass.batch.full_from.empty()) return;
  tokens_left_.clear();
  for (std::size_t row = 0; row < pass.batch.full_from.size(); ++row) {
    for (std::int32_t t = pass.batch.cu_seqlens[row]; t < pass.batch.cu_seqlens[row + 1]; ++t) {
      if (pass.batch.positions[static_cast<std::size_t>(t)] >= pass.batch.full_from[row]) tokens_left_.push_back(t);
    }
  }
  if (static_cast<std::int64_t>(tokens_left_.size()) == pass.num_tokens()) return;
  pass.rows.keep(tokens_left_, {work_.streams.matrix(), work_.next_pre.matrix(), work_.post.matrix(),
                                work_.comb.matrix(), work_.x.matrix()});
  pass.rotary_ratio = -1;
  // Rows of dropped tokens are still seen, here and by later steps.
  if (pass.num_tokens() == 0) {
    store_window_rows(pass, config_.decoder_begin(), windows.step_cu_seqlens, work_.step_rows.data());
  }
}

void Backbone::take_tap(std::int32_t index) {
  const std::vector<std::int32_t>& targets = config_.dspark.target_layers;
  const auto found = std::ranges::find(targets, index);
  if (!weights_.dspark || found == targets.end()) return;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t num_streams = config_.mhc.num_streams;
  for (std::int64_t t = 0; t < pass_->num_tokens(); ++t) {
    float* out = taps_.data() + t * taps_.width() + (found - targets.begin()) * hidden;
    const float* streams = work_.streams.data() + t * num_streams * hidden;
    for (std::int64_t c = 0; c < hidden; ++c) {
      float sum = 0.0F;
      for (std::int64_t s = 0; s < num_streams; ++s) sum += streams[s * hidden + c];
      out[c] = sum / static_cast<float>(num_streams);
    }
  }
}

void Backbone::logits(float* out) {
  Pass& pass = *pass_;
  std::int64_t count = 0;
  for (const std::int32_t token : pass.batch.logit_tokens) {
    const auto found = std::ranges::lower_bound(tokens_left_, token);
    CHECK(found != tokens_left_.end() && *found == token);
    const std::int64_t from = found - tokens_left_.begin();
    std::memmove(work_.streams.data() + count * work_.streams.width(),
                 work_.streams.data() + from * work_.streams.width(),
                 static_cast<std::size_t>(work_.streams.width()) * sizeof(float));
    std::memmove(work_.pre.data() + count * work_.pre.width(), work_.pre.data() + from * work_.pre.width(),
                 static_cast<std::size_t>(work_.pre.width()) * sizeof(float));
    ++count;
  }
  if (count == 0) return;
  collapse(pass, count, work_.streams.data(), work_.pre.data(), &weights_.norm, work_.x.data());
  layers::unembed(pass.stream, weights_.vocabulary, count, work_.x.data(), out);
}

}  // namespace thalweg::models::deepseek_v41
