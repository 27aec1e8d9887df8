#include "models/qwen3_moe/config.h"

#include <fmt/format.h>

namespace thalweg::models::qwen3_moe {
namespace {

void read_gguf(ConfigReader& reader, Config& config) {
  config.experts.num_experts = reader.count("expert_count", kMaxExperts);
  config.experts.top_k = reader.count("expert_used_count", kMaxExperts);
  config.experts.intermediate_size = reader.count("expert_feed_forward_length", kMaxIntermediateSize);
  config.is_sparse.assign(static_cast<std::size_t>(config.decoder.num_layers), true);
  config.rope = read_rope_gguf(reader, config.decoder.head_dim, config.decoder.max_position);
}

/// Every `decoder_sparse_step`-th layer has experts, save those listed in `mlp_only_layers`.
std::vector<bool> read_sparse_layers(ConfigReader& reader, std::int32_t num_layers) {
  const std::int32_t step = reader.count("decoder_sparse_step", kMaxLayers, 1);
  std::vector<bool> is_sparse;
  for (std::int32_t layer = 0; layer < num_layers; ++layer) is_sparse.push_back((layer + 1) % step == 0);
  for (const std::int64_t layer : reader.integers("mlp_only_layers")) {
    if (layer < 0 || layer >= num_layers) {
      reader.reject("mlp_only_layers", fmt::to_string(layer), fmt::format("layers from 0 to {}", num_layers - 1));
      continue;
    }
    is_sparse[static_cast<std::size_t>(layer)] = false;
  }
  return is_sparse;
}

void read_hugging_face(ConfigReader& reader, Config& config) {
  const char* num_experts_key = reader.has("num_experts") ? "num_experts" : "num_local_experts";  // transformers 4, 5
  config.experts.num_experts = reader.count(num_experts_key, kMaxExperts, 128);
  config.experts.top_k = reader.count("num_experts_per_tok", kMaxExperts, 8);
  config.experts.intermediate_size = reader.count("moe_intermediate_size", kMaxIntermediateSize, 768);
  config.normalize_expert_weights = reader.flag("norm_topk_prob", false);
  config.is_sparse = read_sparse_layers(reader, config.decoder.num_layers);
  config.rope = read_rope_hugging_face(reader, find_rope_keys(reader), 10000.0, config.decoder.head_dim,
                                       config.decoder.max_position);
  if (reader.flag("use_sliding_window", false)) config.window = reader.count("sliding_window", kMaxPosition, 4096);
  config.attention_bias = reader.flag("attention_bias", false);
}

}  // namespace

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint, metadata_prefix(checkpoint));
  Config config;
  // Without a head_dim transformers divides the hidden size here, unlike for dense Qwen3.
  config.decoder = read_decoder_config(reader, {.intermediate_size = 6144, .max_position = 32768});
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  if (checkpoint.kind() == weights::CheckpointKind::kGguf) {
    read_gguf(reader, config);
  } else {
    read_hugging_face(reader, config);
  }
  config.experts.hidden_size = config.decoder.hidden_size;
  if (config.experts.top_k > config.experts.num_experts) {
    reader.reject("experts used per token", fmt::to_string(config.experts.top_k),
                  fmt::format("at most the number of experts, {}", config.experts.num_experts));
  }
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  return config;
}

}  // namespace thalweg::models::qwen3_moe
