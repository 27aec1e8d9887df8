#include "models/deepseek_v41/block.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/moe/moe.h"

namespace thalweg::models::deepseek_v41 {
namespace {

/// The classes of the tokens that end at each position of a row, as far as n-grams reach back.
class ClassWindow {
 public:
  ClassWindow(std::span<const std::int32_t> classes, std::size_t size) : classes_(classes), size_(size) {}

  void begin(std::span<const std::int32_t> history) {
    tail_.clear();
    for (const std::int32_t id : history.last(std::min(history.size(), size_ - 1))) push(id);
  }
  std::span<const std::int32_t> push(std::int32_t id) {
    tail_.push_back(classes_[static_cast<std::size_t>(id)]);
    return std::span(tail_).last(std::min(tail_.size(), size_));
  }

 private:
  std::span<const std::int32_t> classes_;
  std::size_t size_;
  std::vector<std::int32_t> tail_;
};

/// Of the tokens that are left, the newest of each row; n-grams reach back over those that are not.
std::vector<std::int64_t> rows_of_tokens(const Pass& pass, const kernels::EngramHash& hash,
                                         std::span<const std::int32_t> classes) {
  const step::BatchView& batch = pass.batch;
  const std::span<const std::int32_t> left = pass.rows.batch().cu_seqlens;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(pass.num_tokens()) * hash.primes.size());
  ClassWindow window(classes, hash.multipliers.size());
  std::int64_t* out = rows.data();
  for (std::size_t row = 0; row + 1 < batch.cu_seqlens.size(); ++row) {
    window.begin(batch.histories.empty() ? std::span<const std::int32_t>() : batch.histories[row]);
    const std::int32_t end = batch.cu_seqlens[row + 1];
    const std::int32_t first_left = end - (left[row + 1] - left[row]);
    for (std::int32_t t = batch.cu_seqlens[row]; t < end; ++t) {
      const std::span<const std::int32_t> tail = window.push(batch.token_ids[static_cast<std::size_t>(t)]);
      if (t < first_left) continue;
      kernels::engram_rows(hash, tail, out);
      out += hash.primes.size();
    }
  }
  return rows;
}

}  // namespace

void embed(Pass& pass, const layers::Vocabulary& vocabulary, std::span<const std::int32_t> token_ids) {
  Workspace& work = pass.work;
  const std::int64_t hidden = pass.config.hidden_size;
  const std::int64_t num_streams = pass.config.mhc.num_streams;
  layers::embed(pass.stream, vocabulary, token_ids, 1.0F, work.x.data());
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(token_ids.size()); ++t) {
    for (std::int64_t s = 0; s < num_streams; ++s) {
      std::memcpy(work.streams.data() + (t * num_streams + s) * hidden, work.x.data() + t * hidden,
                  static_cast<std::size_t>(hidden) * sizeof(float));
      work.pre.data()[t * num_streams + s] = s == 0 ? 1.0F : 0.0F;
    }
  }
}

void collapse(Pass& pass, std::int64_t count, const float* streams, const float* pre, const layers::Norm* norm,
              float* out) {
  kernels::mhc_collapse(pass.stream, pass.config.mhc, count, streams, pre, pass.rounding.rounds_bf16, out);
  if (norm == nullptr) return;
  layers::norm(pass.stream, *norm, count, out, out);
  round(pass.stream, pass.rounding, out, count * pass.config.hidden_size);
}

void begin_sublayer(Pass& pass, const MixWeights& mix, const layers::Norm& norm, const float* pre, float* next_pre) {
  Workspace& work = pass.work;
  kernels::mhc_mix(pass.stream, pass.config.mhc, mix.view(), pass.num_tokens(), work.streams.data(), next_pre,
                   work.post.data(), work.comb.data());
  collapse(pass, pass.num_tokens(), work.streams.data(), pre, &norm, work.x.data());
}

void end_sublayer(Pass& pass) {
  Workspace& work = pass.work;
  kernels::mhc_expand(pass.stream, pass.config.mhc, pass.num_tokens(), work.out.data(), work.post.data(),
                      work.comb.data(), pass.rounding.rounds_bf16, work.streams.data());
}

void run_experts(Pass& pass, const ExpertWeights& weights, const ExpertSettings& settings, std::int32_t layer) {
  Workspace& work = pass.work;
  const Config& config = pass.config;
  const std::int64_t num_tokens = pass.num_tokens();
  float* logits = work.gate_logits.data();
  product(pass.stream, weights.gate, num_tokens, work.x.data(), logits);
  if (config.gate_temperature != 1.0F) {
    for (std::int64_t i = 0; i < num_tokens * settings.num_experts; ++i) logits[i] /= config.gate_temperature;
  }
  kernels::moe_biased_gate(pass.stream, {.logits = logits,
                                         .num_tokens = num_tokens,
                                         .num_experts = settings.num_experts,
                                         .top_k = settings.top_k,
                                         .scoring = kernels::GateScoring::kSqrtSoftplus,
                                         .bias = weights.bias.data(),
                                         .scale = config.routed_scale,
                                         .expert_ids = work.expert_ids.data(),
                                         .weights = work.gate_weights.data()});
  pass.show(layer, "route_idx", std::span(work.expert_ids).first(static_cast<std::size_t>(num_tokens * settings.top_k)),
            settings.top_k);
  pass.show(layer, "route_w", num_tokens, settings.top_k, work.gate_weights.data());

  std::fill_n(work.out.data(), num_tokens * config.hidden_size, 0.0F);
  kernels::ClampedExpertsParams params{.x = activations(pass.stream, pass.rounding, num_tokens, config.hidden_size,
                                                        work.x.data(), work.quantized.data()),
                                       .num_tokens = num_tokens,
                                       .top_k = settings.top_k,
                                       .expert_ids = work.expert_ids.data(),
                                       .weights = work.gate_weights.data(),
                                       .gate_up = weights.gate_up,
                                       .down = weights.down,
                                       .limit = config.activation_limit,
                                       .weighs_before_down = pass.rounding.weighs_before_down,
                                       .rounds_bf16 = pass.rounding.rounds_bf16,
                                       .quantizes_activations = pass.rounding.quantizes_activations,
                                       .out = work.out.data()};
  kernels::moe_clamped_experts(pass.stream, params);
  params.top_k = 1;
  params.expert_ids = nullptr;
  params.weights = nullptr;
  params.gate_up = std::span(&weights.shared_gate_up, 1);
  params.down = std::span(&weights.shared_down, 1);
  kernels::moe_clamped_experts(pass.stream, params);
  round(pass.stream, pass.rounding, work.out.data(), num_tokens * config.hidden_size);
}

void add_engram(Pass& pass, const EngramWeights& weights, const kernels::EngramHash& hash,
                std::span<const std::int32_t> classes, std::int32_t layer) {
  Workspace& work = pass.work;
  const std::int64_t num_tokens = pass.num_tokens();
  const std::vector<std::int64_t> rows = rows_of_tokens(pass, hash, classes);
  kernels::engram_lookup(pass.stream, weights.table, rows, work.engram.data());
  const float* found = activations(pass.stream, pass.rounding, num_tokens, work.engram.width(), work.engram.data(),
                                   work.quantized.data());
  rounded_product(pass.stream, pass.rounding, weights.key_value, num_tokens, found, work.engram_kv.data());
  const bool shows = pass.tap != nullptr && *pass.tap;
  kernels::engram_gate(pass.stream, {.shape = pass.config.mhc,
                                     .num_tokens = num_tokens,
                                     .y = work.engram_kv.data(),
                                     .q_weight = weights.q_weight.data(),
                                     .k_weight = weights.k_weight.data(),
                                     .dead = {},
                                     .rounds_bf16 = pass.rounding.rounds_bf16,
                                     .gate = shows ? work.post.data() : nullptr,
                                     .x = work.streams.data()});
  if (!shows) return;
  const std::vector<std::int32_t> shown(rows.begin(), rows.end());
  pass.show(layer, "engram_rows", shown, static_cast<std::int64_t>(hash.primes.size()));
  pass.show(layer, "engram_gate", num_tokens, pass.config.mhc.num_streams, work.post.data());
}

}  // namespace thalweg::models::deepseek_v41
