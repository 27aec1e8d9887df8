#include "models/qwen3/config.h"

#include "models/sliding_layers.h"

namespace thalweg::models::qwen3 {

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint, metadata_prefix(checkpoint));
  Config config;
  config.decoder = read_decoder_config(reader, {.head_dim = 128, .max_position = 32768});
  if (Status status = reader.status(); !status) return std::unexpected(status.error());

  const std::int32_t head_dim = config.decoder.head_dim;
  const std::int32_t max_position = config.decoder.max_position;
  if (checkpoint.kind() == weights::CheckpointKind::kGguf) {
    config.rope = read_rope_gguf(reader, head_dim, max_position);
    config.windows.assign(static_cast<std::size_t>(config.decoder.num_layers), 0);
  } else {
    config.rope = read_rope_hugging_face(reader, find_rope_keys(reader), 10000.0, head_dim, max_position);
    config.windows = read_qwen_windows(reader, config.decoder.num_layers);
    config.attention_bias = reader.flag("attention_bias", false);
  }
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  return config;
}

}  // namespace thalweg::models::qwen3
