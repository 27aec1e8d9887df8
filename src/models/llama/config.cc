#include "models/llama/config.h"

#include <fmt/format.h>

namespace thalweg::models::llama {
namespace {

void read_gguf(ConfigReader& reader, Config& config) {
  const std::int32_t num_experts = reader.count_or_zero("expert_count", kMaxExperts);
  if (num_experts > 0) reader.unsupported("expert_count", fmt::to_string(num_experts), "0 (no mixture of experts)");
  config.rope = read_rope_gguf(reader, config.decoder.head_dim, config.decoder.max_position);
  // The metadata does not say whether there are biases; the tensors do.
  const weights::Checkpoint& checkpoint = reader.checkpoint();
  config.qkv_bias = checkpoint.find("blk.0.attn_q.bias") != nullptr;
  config.out_bias = checkpoint.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = checkpoint.find("blk.0.ffn_gate.bias") != nullptr;
}

void read_hugging_face(ConfigReader& reader, Config& config) {
  config.rope = read_rope_hugging_face(reader, find_rope_keys(reader), 10000.0, config.decoder.head_dim,
                                       config.decoder.max_position);
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
}

}  // namespace

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint, metadata_prefix(checkpoint));
  Config config;
  config.decoder = read_decoder_config(reader, {.max_position = 2048});
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  if (checkpoint.kind() == weights::CheckpointKind::kGguf) {
    read_gguf(reader, config);
  } else {
    read_hugging_face(reader, config);
  }
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  return config;
}

}  // namespace thalweg::models::llama
