#include "models/deepseek_v4/config.h"

#include <fmt/format.h>

namespace thalweg::models::deepseek_v4 {
namespace {

constexpr std::int64_t kMaxIndexTopK = 1 << 16;  // each query of a step has a list of that length
constexpr std::int64_t kMaxWindow = 1 << 16;     // each slot holds as many rows per layer

void require_text(ConfigReader& reader, const char* key, const char* supported) {
  const std::string found = reader.text(key, supported);
  if (found != supported) reader.unsupported(key, fmt::format("'{}'", found), supported);
}

AttentionShape read_attention(ConfigReader& reader, const DecoderConfig& decoder) {
  AttentionShape shape{.hidden_size = decoder.hidden_size,
                       .num_heads = decoder.num_heads,
                       .head_dim = decoder.head_dim,
                       .rope_dim = reader.count("qk_rope_head_dim", kMaxHeadDim),
                       .q_lora_rank = reader.count("q_lora_rank", kMaxHiddenSize),
                       .num_output_groups = reader.count("o_groups", kMaxHeads),
                       .output_lora_rank = reader.count("o_lora_rank", kMaxHiddenSize),
                       .window = reader.count("sliding_window", kMaxWindow)};
  if (decoder.num_kv_heads != 1) {
    reader.unsupported("num_key_value_heads", fmt::to_string(decoder.num_kv_heads), "1");
  }
  if (shape.rope_dim % 2 != 0 || shape.rope_dim > shape.head_dim) {
    reader.reject("qk_rope_head_dim", fmt::to_string(shape.rope_dim),
                  fmt::format("an even number up to head_dim, {}", shape.head_dim));
  }
  if (shape.num_heads % shape.num_output_groups != 0) {
    reader.reject("o_groups", fmt::to_string(shape.num_output_groups),
                  fmt::format("a divisor of the {} heads", shape.num_heads));
  }
  if (reader.flag("attention_bias", false)) reader.unsupported("attention_bias", "true", "false");
  return shape;
}

/// One number per layer and, behind them, those of the layers that predict further tokens.
std::vector<Compression> read_compression(ConfigReader& reader, std::int32_t num_layers) {
  const std::vector<std::int64_t> ratios = reader.integers("compress_ratios");
  std::vector<Compression> compression;
  if (ratios.size() < static_cast<std::size_t>(num_layers)) {
    reader.reject("compress_ratios", fmt::format("a list of {}", ratios.size()),
                  fmt::format("one per layer, {}", num_layers));
    return compression;
  }
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(num_layers); ++layer) {
    const std::int64_t ratio = ratios[layer];
    if (ratio != 0 && ratio != kSparseRatio && ratio != kHeavyRatio) {
      reader.unsupported("compress_ratios", fmt::to_string(ratio), "0, 4, 128");
    }
    compression.push_back(ratio == 0              ? Compression::kNone
                          : ratio == kSparseRatio ? Compression::kSparse
                                                  : Compression::kHeavy);
  }
  return compression;
}

IndexShape read_index(ConfigReader& reader, const AttentionShape& attention) {
  IndexShape shape{.num_heads = reader.count("index_n_heads", kMaxHeads),
                   .head_dim = reader.count("index_head_dim", kMaxHeadDim),
                   .top_k = reader.count("index_topk", kMaxIndexTopK)};
  if (shape.head_dim < attention.rope_dim) {
    reader.reject("index_head_dim", fmt::to_string(shape.head_dim),
                  fmt::format("at least qk_rope_head_dim, {}", attention.rope_dim));
  }
  return shape;
}

void read_rope(ConfigReader& reader, Config& config) {
  const std::int32_t rope_dim = config.attention.rope_dim;
  const std::int32_t max_position = config.decoder.max_position;
  config.window_rope =
      read_rope_hugging_face(reader, {"no_scaling_of_window_layers", "rope_theta"}, 10000.0, rope_dim, max_position);
  config.compressed_rope =
      read_rope_hugging_face(reader, {"rope_scaling", "compress_rope_theta"}, 160000.0, rope_dim, max_position);
  // V4 takes YaRN's frequencies without its temperature.
  config.compressed_rope.frequencies.magnitude = 1.0F;
}

kernels::MhcShape read_mhc(ConfigReader& reader, const DecoderConfig& decoder) {
  constexpr std::int64_t kMaxStreams = 16;
  constexpr std::int64_t kMaxSteps = 1000;
  return {.num_streams = reader.count("hc_mult", kMaxStreams, 4),
          .hidden_size = decoder.hidden_size,
          .norm_epsilon = decoder.norm_epsilon,
          .epsilon = static_cast<float>(reader.number("hc_eps", 0.0, 1.0, 1e-6)),
          .num_sinkhorn_steps = reader.count("hc_sinkhorn_iters", kMaxSteps, 20)};
}

void read_experts(ConfigReader& reader, Config& config) {
  require_text(reader, "scoring_func", "sqrtsoftplus");
  require_text(reader, "topk_method", "noaux_tc");
  if (!reader.flag("norm_topk_prob", true)) reader.unsupported("norm_topk_prob", "false", "true");
  if (const std::int32_t shared = reader.count("n_shared_experts", kMaxExperts, 1); shared != 1) {
    reader.unsupported("n_shared_experts", fmt::to_string(shared), "1");
  }
  config.experts = {.hidden_size = config.decoder.hidden_size,
                    .intermediate_size = reader.count("moe_intermediate_size", kMaxIntermediateSize),
                    .num_experts = reader.count("n_routed_experts", kMaxExperts),
                    .top_k = reader.count("num_experts_per_tok", kMaxExperts)};
  if (config.experts.top_k > config.experts.num_experts) {
    reader.reject("num_experts_per_tok", fmt::to_string(config.experts.top_k),
                  fmt::format("at most n_routed_experts, {}", config.experts.num_experts));
  }
  config.num_hash_layers = reader.count_or_zero("num_hash_layers", kMaxLayers);
  config.router_scale = static_cast<float>(reader.number("routed_scaling_factor", 1e-6, 1e6, 1.0));
  config.swiglu_limit = static_cast<float>(reader.number("swiglu_limit", 1e-3, 1e9, 10.0));
}

}  // namespace

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint, metadata_prefix(checkpoint));
  Config config;
  config.decoder = read_decoder_config(reader, {.intermediate_size = 1});
  config.attention = read_attention(reader, config.decoder);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  config.index = read_index(reader, config.attention);
  config.compression = read_compression(reader, config.decoder.num_layers);
  read_rope(reader, config);
  config.mhc = read_mhc(reader, config.decoder);
  read_experts(reader, config);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  return config;
}

}  // namespace thalweg::models::deepseek_v4
