#include "models/deepseek_v41/pass.h"

#include <algorithm>
#include <cmath>

namespace thalweg::models::deepseek_v41 {

Frequencies::Frequencies(const Config& config)
    : window(kernels::rope_default(config.rope_dim, config.rope.theta).inverse),
      // YaRN without its factor on cosines and sines.
      compressed(kernels::rope_yarn(config.rope_dim, config.rope.compressed_theta, config.rope.factor,
                                    config.rope.original_max_position, config.rope.beta_fast, config.rope.beta_slow,
                                    1.0)
                     .inverse) {}

void fill_rotary(std::span<const float> frequencies, std::span<const std::int32_t> positions, bool inverse,
                 float* out) {
  const std::size_t num_pairs = frequencies.size();
  const float sign = inverse ? -1.0F : 1.0F;
  for (const std::int32_t position : positions) {
    for (std::size_t j = 0; j < num_pairs; ++j) {
      const float angle = static_cast<float>(position) * frequencies[j];
      out[j] = std::cos(angle);
      out[num_pairs + j] = sign * std::sin(angle);
    }
    out += 2 * num_pairs;
  }
}

void rotate(device::Stream& stream, const Config& config, std::int64_t num_tokens, std::int32_t num_heads,
            std::int32_t head_dim, const float* rotary, float* x) {
  kernels::rope(stream, {.x = x + (head_dim - config.rope_dim),
                         .x_stride = std::int64_t{num_heads} * head_dim,
                         .num_tokens = num_tokens,
                         .num_heads = num_heads,
                         .head_dim = head_dim,
                         .rope_dim = config.rope_dim,
                         .pairing = kernels::RopePairing::kInterleaved,
                         .cos_sin = rotary});
}

Workspace::Workspace(const Config& config, const CacheLayout& layout, std::int64_t max_tokens) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t streams_count = config.mhc.num_streams;
  const std::int64_t attended_width = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t grouped_width = std::int64_t{config.num_output_groups} * config.output_lora_rank;
  const EngramSettings& engram_settings = config.engram;
  const std::int64_t engram_width = engram_settings.hash.layer_ids.empty()
                                        ? 0
                                        : std::int64_t{engram_settings.hash.max_ngram_size - 1} *
                                              engram_settings.hash.num_heads * engram_settings.head_dim;
  const std::int64_t taps_width = static_cast<std::int64_t>(config.dspark.target_layers.size()) * hidden;
  const auto rows = [&](std::int64_t width) { return Rows(max_tokens, width); };

  streams = rows(streams_count * hidden);
  pre = rows(streams_count);
  next_pre = rows(streams_count);
  post = rows(streams_count);
  comb = rows(streams_count * streams_count);
  x = rows(hidden);
  out = rows(hidden);
  quantized = rows(std::max({hidden, std::int64_t{config.q_lora_rank}, grouped_width, engram_width, taps_width}));
  q_down = rows(config.q_lora_rank);
  q = rows(attended_width);
  attended = rows(attended_width);
  grouped = rows(grouped_width);
  kv = rows(config.head_dim);
  compressor = rows(2 * std::int64_t{config.head_dim});
  latents = rows(config.head_dim);
  index_keys = rows(config.index.head_dim);
  index_q = rows(std::int64_t{config.index.num_heads} * config.index.head_dim);
  index_weights = rows(config.index.num_heads);
  const std::int32_t num_experts = std::max(config.experts.num_experts, config.dspark.experts.num_experts);
  const std::int32_t top_k = std::max(config.experts.top_k, config.dspark.experts.top_k);
  gate_logits = rows(num_experts);
  gate_weights = rows(top_k);
  rotary = rows(config.rope_dim);
  inverse_rotary = rows(config.rope_dim);
  entry_rotary = rows(config.rope_dim);
  engram = rows(engram_width);
  engram_kv = rows(engram_width == 0 ? 0 : (streams_count + 1) * hidden);
  step_rows = device::Buffer(static_cast<std::size_t>(max_tokens * layout.row_bytes()));

  const auto count = static_cast<std::size_t>(max_tokens);
  expert_ids.resize(count * static_cast<std::size_t>(top_k));
  lists.resize(count * static_cast<std::size_t>(config.index.top_k));
  candidates.resize(count * static_cast<std::size_t>(config.index.max_candidate_blocks));
  num_visible.resize(count);
}

void use_rotary(Pass& pass, std::int32_t ratio) {
  const std::int32_t kind = std::min(ratio, 1);
  if (pass.rotary_ratio == kind) return;
  pass.rotary_ratio = kind;
  const std::vector<float>& frequencies = pass.frequencies.of(ratio);
  fill_rotary(frequencies, pass.rows.batch().positions, false, pass.work.rotary.data());
  fill_rotary(frequencies, pass.rows.batch().positions, true, pass.work.inverse_rotary.data());
}

void Pass::show(std::int32_t layer, const char* name, std::span<const std::int32_t> values,
                std::int64_t num_cols) const {
  if (tap == nullptr || !*tap || num_cols == 0) return;
  const std::vector<float> shown(values.begin(), values.end());
  show(layer, name, static_cast<std::int64_t>(values.size()) / num_cols, num_cols, shown.data());
}

}  // namespace thalweg::models::deepseek_v41
