#include "models/deepseek_v3/config.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace thalweg::models::deepseek_v3 {
namespace {

constexpr std::int64_t kMaxIndexTopK = 1 << 16;  // each query of a step has a list of that length
constexpr std::int64_t kMaxRank = kMaxHiddenSize;

void require_text(ConfigReader& reader, const char* key, const char* supported) {
  const std::string found = reader.text(key, supported);
  if (found != supported) reader.unsupported(key, fmt::format("'{}'", found), supported);
}

MlaShape read_attention(ConfigReader& reader, const DecoderConfig& decoder) {
  if (reader.flag("attention_bias", false)) reader.unsupported("attention_bias", "true", "false");
  MlaShape shape{.hidden_size = decoder.hidden_size,
                 .num_heads = decoder.num_heads,
                 .q_lora_rank = reader.count_or_zero("q_lora_rank", kMaxRank),
                 .kv_lora_rank = reader.count("kv_lora_rank", kMaxRank),
                 .nope_dim = reader.count("qk_nope_head_dim", kMaxHeadDim),
                 .rope_dim = reader.count("qk_rope_head_dim", kMaxHeadDim),
                 .value_dim = reader.count("v_head_dim", kMaxHeadDim)};
  if (shape.rope_dim % 2 != 0) reader.reject("qk_rope_head_dim", fmt::to_string(shape.rope_dim), "an even number");
  return shape;
}

/// YaRN's temperature stands in the softmax scale where the file gives it for all channels ("mscale_all_dim"); what
/// remains for the rotary channels is in the frequencies' magnitude.
float read_attention_scale(ConfigReader& reader, const MlaShape& shape, const RopeKeys& keys) {
  const double plain = 1.0 / std::sqrt(static_cast<double>(shape.qk_dim()));
  const double weight = reader.number(keys.scaling + ".mscale_all_dim", 0.0, 1e3, 0.0);
  const double factor = reader.number(keys.scaling + ".factor", 1e-3, 1e6, 1.0);
  const double magnitude = factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  return static_cast<float>(plain * magnitude * magnitude);
}

void read_experts(ConfigReader& reader, Config& config) {
  layers::MoeShape& experts = config.experts;
  RouterConfig& router = config.router;
  require_text(reader, "scoring_func", "sigmoid");
  require_text(reader, "topk_method", "noaux_tc");
  if (const std::int32_t step = reader.count("moe_layer_freq", kMaxLayers, 1); step != 1) {
    reader.unsupported("moe_layer_freq", fmt::to_string(step), "1");
  }
  config.num_dense_layers = reader.count_or_zero("first_k_dense_replace", kMaxLayers, 3);
  experts.hidden_size = config.decoder.hidden_size;
  experts.intermediate_size = reader.count("moe_intermediate_size", kMaxIntermediateSize);
  experts.num_experts = reader.count("n_routed_experts", kMaxExperts);
  experts.top_k = reader.count("num_experts_per_tok", kMaxExperts);
  config.num_shared_experts = reader.count("n_shared_experts", kMaxExperts, 1);
  router.num_groups = reader.count("n_group", kMaxExperts, 1);
  router.top_groups = reader.count("topk_group", kMaxExperts, 1);
  router.normalize = reader.flag("norm_topk_prob", true);
  router.scale = static_cast<float>(reader.number("routed_scaling_factor", 1e-6, 1e6, 1.0));

  if (experts.num_experts % router.num_groups != 0 || experts.num_experts / router.num_groups < 2) {
    reader.reject("n_group", fmt::to_string(router.num_groups),
                  fmt::format("a number that divides the {} experts into groups of two or more", experts.num_experts));
    return;
  }
  if (router.top_groups > router.num_groups) {
    reader.reject("topk_group", fmt::to_string(router.top_groups),
                  fmt::format("at most n_group, {}", router.num_groups));
  }
  const std::int32_t num_eligible = experts.num_experts / router.num_groups * router.top_groups;
  if (experts.top_k > num_eligible) {
    reader.reject("num_experts_per_tok", fmt::to_string(experts.top_k),
                  fmt::format("at most the {} experts of topk_group groups", num_eligible));
  }
}

IndexShape read_index(ConfigReader& reader, const MlaShape& attention) {
  IndexShape shape{.num_heads = reader.count("index_n_heads", kMaxHeads),
                   .head_dim = reader.count("index_head_dim", kMaxHeadDim),
                   .top_k = reader.count("index_topk", kMaxIndexTopK)};
  if (shape.head_dim < attention.rope_dim) {
    reader.reject("index_head_dim", fmt::to_string(shape.head_dim),
                  fmt::format("at least qk_rope_head_dim, {}", attention.rope_dim));
  }
  if (attention.q_lora_rank == 0) reader.reject("q_lora_rank", "absent", "a rank: the index reads it");
  return shape;
}

}  // namespace

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint, metadata_prefix(checkpoint));
  Config config;
  config.decoder = read_decoder_config(reader, {.head_dim = 64});
  config.attention = read_attention(reader, config.decoder);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  const RopeKeys keys = find_rope_keys(reader);
  config.rope = read_rope_hugging_face(reader, keys, 10000.0, config.attention.rope_dim, config.decoder.max_position);
  config.attention_scale = read_attention_scale(reader, config.attention, keys);
  if (!reader.flag("rope_interleave", true)) config.rope_pairing = kernels::RopePairing::kHalves;
  read_experts(reader, config);
  if (checkpoint.architecture() == "DeepseekV32ForCausalLM") config.index = read_index(reader, config.attention);
  config.num_mtp_layers = reader.count_or_zero("num_nextn_predict_layers", kMaxLayers);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  return config;
}

}  // namespace thalweg::models::deepseek_v3
