#include "apps/model_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "text/deepseek_v41/encoding.h"
#include "text/deepseek_v41/tokens.h"
#include "weights/gguf.h"
#include "weights/json_metadata.h"

namespace thalweg::apps {
namespace {

constexpr std::uintmax_t kMaxTextFileBytes = 256U << 20;

constexpr std::string_view kDeepseekV41 = "DeepseekV41ForCausalLM";

/// Every generation of chat models has ended its turns with one of these; a file that lists only its document end
/// token still means them.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"};

template <typename T>
std::optional<T> present(Result<T> result) {
  return result ? std::optional<T>(std::move(*result)) : std::nullopt;
}

std::optional<std::int32_t> optional_id(const weights::Metadata& metadata, std::string_view key) {
  const auto id = present(metadata.get_int(key));
  return id ? std::optional<std::int32_t>(static_cast<std::int32_t>(*id)) : std::nullopt;
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::kNotFound, fmt::format("cannot read {}: {}", path.string(), error.message()));
  if (size > kMaxTextFileBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} bytes; at most {} are read", path.string(), size, kMaxTextFileBytes));
  }
  std::ifstream stream(path, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(stream), {}};
}

std::string read_file_if_there(const std::filesystem::path& path) {
  auto text = read_file(path);
  return text ? std::move(*text) : std::string();
}

Result<text::GgufVocabulary> gguf_vocabulary(const weights::GgufMetadata& metadata) {
  text::GgufVocabulary vocabulary;
  auto model = metadata.get_string("tokenizer.ggml.model");
  if (!model) return std::unexpected(model.error());
  vocabulary.model = std::move(*model);
  vocabulary.pre = present(metadata.get_string("tokenizer.ggml.pre")).value_or("");
  auto tokens = metadata.string_array("tokenizer.ggml.tokens");
  if (!tokens) return std::unexpected(tokens.error());
  vocabulary.tokens.assign(tokens->begin(), tokens->end());
  if (metadata.has("tokenizer.ggml.merges")) {
    auto merges = metadata.string_array("tokenizer.ggml.merges");
    if (!merges) return std::unexpected(merges.error());
    vocabulary.merges.assign(merges->begin(), merges->end());
  }
  if (metadata.has("tokenizer.ggml.scores")) {
    auto scores = metadata.float_array("tokenizer.ggml.scores");
    if (!scores) return std::unexpected(scores.error());
    vocabulary.scores = std::move(*scores);
  }
  if (metadata.has("tokenizer.ggml.token_type")) {
    auto types = metadata.int_array("tokenizer.ggml.token_type");
    if (!types) return std::unexpected(types.error());
    vocabulary.types = std::move(*types);
  }
  vocabulary.bos_token_id = optional_id(metadata, "tokenizer.ggml.bos_token_id");
  vocabulary.eos_token_id = optional_id(metadata, "tokenizer.ggml.eos_token_id");
  vocabulary.unknown_token_id = optional_id(metadata, "tokenizer.ggml.unknown_token_id");
  vocabulary.add_bos = present(metadata.get_bool("tokenizer.ggml.add_bos_token"));
  vocabulary.add_eos = present(metadata.get_bool("tokenizer.ggml.add_eos_token"));
  vocabulary.add_space_prefix = present(metadata.get_bool("tokenizer.ggml.add_space_prefix"));
  return vocabulary;
}

std::string token_text(const text::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  return id ? std::string(tokenizer.token_bytes(*id)) : std::string();
}

void add_id(std::vector<std::int32_t>& ids, std::optional<std::int32_t> id) {
  if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
}

Status compile_template(ModelText& model, std::string_view source) {
  if (source.empty()) return {};
  const text::Tokenizer& tokenizer = *model.tokenizer;
  auto compiled = text::ChatTemplate::compile(source, token_text(tokenizer, tokenizer.bos_token_id()),
                                              token_text(tokenizer, tokenizer.eos_token_id()));
  if (!compiled) return std::unexpected(compiled.error());
  model.chat_template = std::move(*compiled);
  return {};
}

/// The model's encoding stands in for a template. It may go on to write the next turn itself: that ends its answer too.
void use_deepseek_v41_encoding(ModelText& model) {
  model.chat_template = text::deepseek_v41::make_encoding();
  for (const std::string_view turn : {text::deepseek_v41::kUser, text::deepseek_v41::kSystem}) {
    add_id(model.eos_token_ids, model.tokenizer->token_id(turn));
  }
}

Result<ModelText> from_gguf(const weights::GgufMetadata& metadata) {
  auto vocabulary = gguf_vocabulary(metadata);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  auto tokenizer = text::Tokenizer::from_gguf(std::move(*vocabulary));
  if (!tokenizer) return std::unexpected(tokenizer.error());
  ModelText model;
  model.tokenizer = std::move(*tokenizer);
  add_id(model.eos_token_ids, model.tokenizer->eos_token_id());
  add_id(model.eos_token_ids, optional_id(metadata, "tokenizer.ggml.eot_token_id"));
  const std::string source = present(metadata.get_string("tokenizer.chat_template")).value_or("");
  if (auto status = compile_template(model, source); !status) return std::unexpected(status.error());
  return model;
}

/// tokenizer_config.json holds the template as text, or as a list of named ones; newer folders have a file of its own.
std::string folder_chat_template(const std::filesystem::path& folder, const weights::Metadata& tokenizer_config) {
  std::string source = read_file_if_there(folder / "chat_template.jinja");
  return source.empty() ? present(tokenizer_config.get_string("chat_template")).value_or("") : source;
}

void read_generation_defaults(const weights::Metadata& generation, ModelText& model) {
  SamplingParams& sampling = model.default_sampling;
  const auto number = [&](std::string_view key, float& into) {
    if (const auto value = present(generation.get_float(key))) into = static_cast<float>(*value);
  };
  number("temperature", sampling.temperature);
  number("top_p", sampling.top_p);
  number("min_p", sampling.min_p);
  number("repetition_penalty", sampling.repetition_penalty);
  if (const auto top_k = present(generation.get_int("top_k"))) sampling.top_k = static_cast<std::int32_t>(*top_k);
  if (!validate_sampling(sampling, model.tokenizer->vocab_size())) sampling = SamplingParams{};
}

void read_eos_ids(const weights::Metadata& metadata, std::vector<std::int32_t>& ids) {
  const std::string key = weights::language_model_key(metadata, "eos_token_id");
  if (const auto list = present(metadata.get_ints(key))) {
    for (const std::int64_t id : *list) add_id(ids, static_cast<std::int32_t>(id));
  } else {
    add_id(ids, optional_id(metadata, key));
  }
}

Result<ModelText> from_folder(const weights::Checkpoint& checkpoint) {
  const std::filesystem::path folder = checkpoint.path();
  const auto tokenizer_json = read_file(folder / "tokenizer.json");
  if (!tokenizer_json) return std::unexpected(tokenizer_json.error());
  const std::string config_json = read_file_if_there(folder / "tokenizer_config.json");
  auto tokenizer = text::Tokenizer::from_json(*tokenizer_json, config_json);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  ModelText model;
  model.tokenizer = std::move(*tokenizer);
  read_eos_ids(checkpoint.generation_metadata(), model.eos_token_ids);
  read_eos_ids(checkpoint.metadata(), model.eos_token_ids);
  add_id(model.eos_token_ids, model.tokenizer->eos_token_id());
  auto tokenizer_config = weights::JsonMetadata::parse(config_json.empty() ? "{}" : config_json,
                                                       (folder / "tokenizer_config.json").string());
  if (!tokenizer_config) return std::unexpected(tokenizer_config.error());
  if (checkpoint.architecture() == kDeepseekV41) {
    use_deepseek_v41_encoding(model);
  } else if (auto status = compile_template(model, folder_chat_template(folder, *tokenizer_config)); !status) {
    return std::unexpected(status.error());
  }
  read_generation_defaults(checkpoint.generation_metadata(), model);
  return model;
}

}  // namespace

Result<ModelText> read_model_text(const weights::Checkpoint& checkpoint) {
  const weights::GgufMetadata* gguf = checkpoint.gguf_metadata();
  auto model = gguf != nullptr ? from_gguf(*gguf) : from_folder(checkpoint);
  if (!model) return model;
  for (const std::string_view name : kTurnEnds) {
    const auto id = model->tokenizer->token_id(name);
    if (id && model->tokenizer->is_special(*id)) add_id(model->eos_token_ids, id);
  }
  return model;
}

}  // namespace thalweg::apps
