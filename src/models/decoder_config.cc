#include "models/decoder_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "weights/fp8.h"

namespace thalweg::models {
namespace {

std::optional<std::int64_t> or_required(std::int64_t value) {
  if (value == 0) return std::nullopt;
  return value;
}

/// Weight formats besides plain floats: only FP8 with a scale per block.
void check_quantization(ConfigReader& reader) {
  const Result<std::optional<weights::Fp8Block>> block = weights::fp8_block(reader.checkpoint());
  if (!block) reader.keep(block.error());
}

DecoderConfig read_hugging_face(ConfigReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig config;
  config.vocab_size = reader.count("vocab_size", kMaxVocabSize, or_required(defaults.vocab_size));
  config.hidden_size = reader.count("hidden_size", kMaxHiddenSize, or_required(defaults.hidden_size));
  config.intermediate_size =
      reader.count("intermediate_size", kMaxIntermediateSize, or_required(defaults.intermediate_size));
  config.num_layers = reader.count("num_hidden_layers", kMaxLayers, or_required(defaults.num_layers));
  config.num_heads = reader.count("num_attention_heads", kMaxHeads, or_required(defaults.num_heads));
  config.num_kv_heads = reader.count("num_key_value_heads", kMaxHeads,
                                     defaults.num_kv_heads == 0 ? config.num_heads : defaults.num_kv_heads);
  const std::int64_t split = std::max(config.hidden_size / config.num_heads, 1);
  config.head_dim = reader.count("head_dim", kMaxHeadDim, defaults.head_dim == 0 ? split : defaults.head_dim);
  config.max_position = reader.count("max_position_embeddings", kMaxPosition, or_required(defaults.max_position));
  config.norm_epsilon = static_cast<float>(reader.number("rms_norm_eps", 0.0, 1.0, 1e-6));
  config.tied_head = reader.flag("tie_word_embeddings", defaults.tied_head);
  const std::string activation = reader.text(defaults.activation_key, defaults.activation);
  if (activation != defaults.activation) {
    reader.unsupported(defaults.activation_key, fmt::format("'{}'", activation), defaults.activation);
  }
  check_quantization(reader);
  return config;
}

DecoderConfig read_gguf(ConfigReader& reader) {
  const weights::TensorInfo* embedding = reader.checkpoint().find("token_embd.weight");
  const std::int64_t num_embeddings = embedding != nullptr && embedding->shape.size() == 2 ? embedding->shape[0] : 1;

  DecoderConfig config;
  config.vocab_size =
      reader.count("vocab_size", kMaxVocabSize, std::clamp<std::int64_t>(num_embeddings, 1, kMaxVocabSize));
  config.hidden_size = reader.count("embedding_length", kMaxHiddenSize);
  config.intermediate_size = reader.count("feed_forward_length", kMaxIntermediateSize);
  config.num_layers = reader.count("block_count", kMaxLayers);
  config.num_heads = reader.count("attention.head_count", kMaxHeads);
  config.num_kv_heads = reader.count("attention.head_count_kv", kMaxHeads, config.num_heads);
  const std::int64_t split = std::max(config.hidden_size / config.num_heads, 1);
  config.head_dim = reader.count("attention.key_length", kMaxHeadDim, split);
  const std::int32_t value_dim = reader.count("attention.value_length", kMaxHeadDim, config.head_dim);
  if (value_dim != config.head_dim) {
    reader.unsupported("attention.value_length", fmt::to_string(value_dim),
                       fmt::format("the same as attention.key_length, {}", config.head_dim));
  }
  config.max_position = reader.count("context_length", kMaxPosition);
  config.norm_epsilon = static_cast<float>(reader.number("attention.layer_norm_rms_epsilon", 0.0, 1.0));
  config.tied_head = reader.checkpoint().find("output.weight") == nullptr;
  return config;
}

}  // namespace

std::string metadata_prefix(const weights::Checkpoint& checkpoint) {
  if (checkpoint.kind() == weights::CheckpointKind::kGguf) return checkpoint.architecture() + ".";
  return checkpoint.metadata().has("text_config.hidden_size") ? "text_config." : "";
}

DecoderConfig read_decoder_config(ConfigReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig config = reader.checkpoint().kind() == weights::CheckpointKind::kGguf
                             ? read_gguf(reader)
                             : read_hugging_face(reader, defaults);
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.reject("number of attention heads", fmt::to_string(config.num_heads),
                  fmt::format("a multiple of the key-value heads, {}", config.num_kv_heads));
  }
  if (config.head_dim % 8 != 0) {
    reader.unsupported("head size", fmt::to_string(config.head_dim), "multiples of 8");
  }
  return config;
}

}  // namespace thalweg::models
