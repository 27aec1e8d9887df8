#include "models/gemma3/config.h"

#include <fmt/format.h>

#include <cmath>

#include "models/sliding_layers.h"

namespace thalweg::models::gemma3 {
namespace {

constexpr std::int32_t kUsualPattern = 6;  // five local layers, then a global one
constexpr double kLocalBase = 10000.0;
constexpr double kGlobalBase = 1000000.0;

std::vector<std::int32_t> periodic_windows(std::int32_t num_layers, std::int32_t window, std::int32_t pattern) {
  std::vector<std::int32_t> windows;
  for (std::int32_t layer = 0; layer < num_layers; ++layer) {
    windows.push_back((layer + 1) % pattern == 0 ? 0 : window);
  }
  return windows;
}

void refuse_soft_caps(ConfigReader& reader, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const double cap = reader.number(key, 0.0, 1e9, 0.0);
    if (cap != 0.0) reader.unsupported(key, fmt::to_string(cap), "none (Gemma 2 has them, Gemma 3 does not)");
  }
}

void read_gguf(ConfigReader& reader, Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const std::int32_t window = reader.count_or_zero("attention.sliding_window", kMaxPosition);
  config.windows = periodic_windows(decoder.num_layers, window, kUsualPattern);
  config.global_rope = read_rope_gguf(reader, decoder.head_dim, decoder.max_position);
  const double local_base = reader.number("rope.freq_base_swa", 1.0, 1e12, kLocalBase);
  config.local_rope = {kernels::rope_default(decoder.head_dim, local_base), decoder.max_position};
  // The file does not say on what scores are scaled: it is the head size in all sizes but the largest, 27B, which is
  // known by its 62 layers.
  const std::int32_t scalar = decoder.num_layers == 62 ? decoder.hidden_size / decoder.num_heads : decoder.head_dim;
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(scalar));
  refuse_soft_caps(reader, {"attn_logit_softcapping", "final_logit_softcapping"});
}

void read_hugging_face(ConfigReader& reader, Config& config) {
  const DecoderConfig& decoder = config.decoder;
  const std::int32_t window = reader.count("sliding_window", kMaxPosition, 4096);
  const char* pattern_key = reader.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  const std::int32_t pattern = reader.count(pattern_key, kMaxLayers, kUsualPattern);
  config.windows = read_layer_windows(reader, decoder.num_layers, window);
  if (config.windows.empty()) config.windows = periodic_windows(decoder.num_layers, window, pattern);
  if (reader.flag("use_bidirectional_attention", false)) {
    reader.unsupported("use_bidirectional_attention", "true", "false");
  }

  config.global_rope =
      read_rope_hugging_face(reader, find_rope_keys(reader), kGlobalBase, decoder.head_dim, decoder.max_position);
  // transformers 4 writes the local base alone; scaling applies to global layers only.
  const RopeKeys local_keys =
      reader.has("rope_parameters.sliding_attention")
          ? RopeKeys{"rope_parameters.sliding_attention", "rope_parameters.sliding_attention.rope_theta"}
          : RopeKeys{"no_scaling_of_local_layers", "rope_local_base_freq"};
  config.local_rope = read_rope_hugging_face(reader, local_keys, kLocalBase, decoder.head_dim, decoder.max_position);

  const double scalar = reader.number("query_pre_attn_scalar", 1e-3, 1e9, 256.0);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  refuse_soft_caps(reader, {"attn_logit_softcapping", "final_logit_softcapping"});
  if (reader.flag("attention_bias", false)) reader.unsupported("attention_bias", "true", "false");
}

/// What transformers assumes; published multimodal checkpoints state only what differs.
DecoderDefaults defaults() {
  return {.vocab_size = 262208,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_layers = 26,
          .num_heads = 8,
          .num_kv_heads = 4,
          .head_dim = 256,
          .max_position = 131072,
          .tied_head = true,
          .activation_key = "hidden_activation",
          .activation = "gelu_pytorch_tanh"};
}

}  // namespace

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  ConfigReader reader(checkpoint, metadata_prefix(checkpoint));
  Config config;
  config.decoder = read_decoder_config(reader, defaults());
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  if (checkpoint.kind() == weights::CheckpointKind::kGguf) {
    read_gguf(reader, config);
  } else {
    read_hugging_face(reader, config);
  }
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  return config;
}

}  // namespace thalweg::models::gemma3
