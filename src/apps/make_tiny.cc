#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "models/deepseek_v41/inventory.h"
#include "models/deepseek_v41/tiny.h"
#include "text/deepseek_v41/prompt.h"
#include "text/deepseek_v41/tokens.h"
#include "text/engram_token_map.h"
#include "text/tokenizer.h"
#include "weights/json_metadata.h"
#include "weights/mapped_checkpoint.h"

namespace thalweg::apps {
namespace {

namespace json = boost::json;
namespace v41 = models::deepseek_v41;
namespace chat = text::deepseek_v41;

constexpr std::string_view kPad = "<｜▁pad▁｜>";
constexpr std::string_view kUnused = "<｜place▁holder▁no▁";

constexpr std::int64_t kMaxBytes = 16'000'000'000;  // of weights; more is no tiny model
constexpr std::int64_t kMaxExpertsInAll = 1 << 17;  // keeps the list of weights itself small

/// config.json before there are weights.
class ConfigAlone final : public weights::MappedCheckpoint {
 public:
  ConfigAlone(const std::string& path, weights::JsonMetadata config)
      : MappedCheckpoint(path, "deepseek_v41", {}, std::move(*weights::TensorTable::create({}, {}))),
        config_(std::move(config)) {}
  weights::CheckpointKind kind() const override { return weights::CheckpointKind::kHuggingFace; }
  const weights::Metadata& metadata() const override { return config_; }

 private:
  const weights::JsonMetadata config_;
};

/// config.json as text and as the numbers in it.
struct ModelConfig {
  json::object json;
  v41::Config numbers;
  std::int64_t bos_id = 0;
  std::int64_t eos_id = 1;
  std::int64_t pad_id = 2;

  /// Where the language model's fields are.
  json::object& fields() {
    json::value* nested = json.if_contains("text_config");
    return nested != nullptr && nested->is_object() ? nested->get_object() : json;
  }
};

Result<std::string> config_text(const std::string& path) {
  if (path.empty()) return std::string(v41::kTinyConfig);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kNotFound, fmt::format("cannot read {}", path), "model-config");
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

/// Numbers that follow from the tokenizer stand empty until it is there.
Result<ModelConfig> read_model_config(const std::string& path) {
  auto text = config_text(path);
  if (!text) return std::unexpected(text.error());
  const std::string where = path.empty() ? "config.json" : path;
  boost::system::error_code error;
  const json::value value = json::parse(*text, error);
  if (error || !value.is_object()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", where), "model-config");
  }
  ModelConfig config{.json = value.get_object(), .numbers = {}};
  json::object& fields = config.fields();
  const json::value* engram_layers = fields.if_contains("engram_layer_ids");
  if (engram_layers != nullptr && engram_layers->is_array()) {
    fields["engram_compressed_vocab_size"] = 1;
    fields["engram_num_embeddings"] = json::array(engram_layers->get_array().size(), 1);
  }
  auto metadata = weights::JsonMetadata::parse(json::serialize(config.json), where);
  if (!metadata) return std::unexpected(metadata.error());
  config.bos_id = metadata->get_int("bos_token_id").value_or(config.bos_id);
  config.eos_id = metadata->get_int("eos_token_id").value_or(config.eos_id);
  config.pad_id = metadata->get_int("pad_token_id").value_or(config.pad_id);
  auto numbers = v41::read_config(ConfigAlone(where, std::move(*metadata)));
  if (!numbers) return std::unexpected(numbers.error());
  config.numbers = std::move(*numbers);
  return config;
}

/// The letter that stands for a byte in byte-level vocabularies: itself if it can be seen, otherwise the next one
/// from U+0100 on.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  unsigned next_hidden = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const unsigned letter = is_visible ? byte : next_hidden++;
    if (letter < 0x80) {
      letters.emplace_back(1, static_cast<char>(letter));
    } else {
      letters.push_back({static_cast<char>(0xc0 | letter >> 6), static_cast<char>(0x80 | (letter & 0x3f))});
    }
  }
  return letters;
}

/// Which token each id is.
class Vocabulary {
 public:
  explicit Vocabulary(std::int32_t size) : tokens_(static_cast<std::size_t>(size)) {}

  Status place(std::string_view token, std::int64_t id) {
    if (id < 0 || id >= std::ssize(tokens_) || !tokens_[static_cast<std::size_t>(id)].empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("id {} of {} is {}, needed one of its own", id, token,
                              id < 0 || id >= std::ssize(tokens_) ? "outside the vocabulary" : "another token's"),
                  "model-config");
    }
    tokens_[static_cast<std::size_t>(id)] = token;
    return {};
  }

  bool place_at_free_id(std::string_view token) {
    const auto free = std::ranges::find(tokens_, "");
    if (free != tokens_.end()) *free = token;
    return free != tokens_.end();
  }

  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  std::vector<std::string> tokens_;
};

/// Ids that the configuration names, then the bytes, then what chats are written with; the rest stands empty.
Result<Vocabulary> make_vocabulary(const ModelConfig& config) {
  const v41::Config& numbers = config.numbers;
  Vocabulary vocabulary(numbers.vocab_size);
  std::vector<std::pair<std::string_view, std::int64_t>> named{
      {chat::kBos, config.bos_id}, {chat::kEos, config.eos_id}, {kPad, config.pad_id}};
  if (numbers.image_token_id >= 0) named.emplace_back("<｜deepseek_image｜>", numbers.image_token_id);
  const bool names_system = numbers.dspark.num_stages > 0;  // as noise of the draft model
  if (names_system) named.emplace_back(chat::kSystem, numbers.dspark.noise_token_id);
  for (const auto& [token, id] : named) {
    if (Status status = vocabulary.place(token, id); !status) return std::unexpected(status.error());
  }
  std::vector<std::string> others = byte_letters();
  if (!names_system) others.emplace_back(chat::kSystem);
  for (const std::string_view token :
       {chat::kUser, chat::kAssistant, chat::kThink, chat::kEndThink, chat::kDsml, chat::kLatestReminder}) {
    others.emplace_back(token);
  }
  for (const char* task : {"action", "query", "authority", "domain", "title", "read_url"}) {
    others.emplace_back(chat::task_token(task));
  }
  for (const std::string& token : others) {
    if (vocabulary.place_at_free_id(token)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("vocab_size is {}, needed at least {}", numbers.vocab_size, named.size() + others.size()),
                "model-config");
  }
  for (int i = 0; vocabulary.place_at_free_id(fmt::format("{}{}｜>", kUnused, i)); ++i) {
  }
  return vocabulary;
}

/// A byte-level tokenizer without merges: a token per byte of the text.
std::string tokenizer_json(const Vocabulary& vocabulary) {
  const std::vector<std::string> letters = byte_letters();
  json::object bytes;
  json::array added;
  for (std::size_t id = 0; id < vocabulary.tokens().size(); ++id) {
    const std::string& token = vocabulary.tokens()[id];
    if (std::ranges::find(letters, token) != letters.end()) {
      bytes.emplace(token, id);
      continue;
    }
    // As in the release: what chats are written with counts as text.
    const bool is_special = token == chat::kBos || token == chat::kEos || token == kPad || token.starts_with(kUnused);
    added.push_back(json::object{{"id", id},
                                 {"content", token},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", !is_special},
                                 {"special", is_special}});
  }
  const json::object byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return json::serialize(json::object{{"version", "1.0"},
                                      {"truncation", nullptr},
                                      {"padding", nullptr},
                                      {"added_tokens", std::move(added)},
                                      {"normalizer", nullptr},
                                      {"pre_tokenizer", byte_level},
                                      {"post_processor", nullptr},
                                      {"decoder", byte_level},
                                      {"model",
                                       {{"type", "BPE"},
                                        {"dropout", nullptr},
                                        {"unk_token", nullptr},
                                        {"continuing_subword_prefix", nullptr},
                                        {"end_of_word_suffix", nullptr},
                                        {"fuse_unk", false},
                                        {"byte_fallback", false},
                                        {"vocab", std::move(bytes)},
                                        {"merges", json::array()}}}});
}

/// Classes of tokens, and the Engram numbers that follow from them.
Result<std::vector<std::int32_t>> settle_engram(const std::string& tokenizer_json, ModelConfig& config) {
  auto tokenizer = text::Tokenizer::from_json(tokenizer_json, "");
  if (!tokenizer) return std::unexpected(tokenizer.error());
  auto classes = text::engram_token_map(**tokenizer);
  if (!classes) return classes;
  v41::EngramSettings& engram = config.numbers.engram;
  if (engram.hash.layer_ids.empty()) return std::vector<std::int32_t>{};
  engram.hash.compressed_vocab_size = std::ranges::max(*classes) + 1;
  engram.hash.pad_class = (*classes)[static_cast<std::size_t>(engram.pad_token_id)];
  engram.num_rows.clear();
  for (const kernels::EngramHash& hash : kernels::make_engram_hashes(engram.hash)) {
    engram.num_rows.push_back(hash.num_rows());
  }
  config.fields()["engram_compressed_vocab_size"] = engram.hash.compressed_vocab_size;
  config.fields()["engram_num_embeddings"] = json::array(engram.num_rows.begin(), engram.num_rows.end());
  return classes;
}

Result<std::int64_t> check_size(const v41::Config& config) {
  const std::int64_t num_experts = std::int64_t{config.num_layers} * config.experts.num_experts +
                                   std::int64_t{config.dspark.num_stages} * config.dspark.experts.num_experts;
  if (num_experts > kMaxExpertsInAll) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the layers have {} experts, needed at most {}", num_experts, kMaxExpertsInAll),
                "model-config");
  }
  std::int64_t num_bytes = 0;
  for (const v41::Parameter& parameter : v41::inventory(config)) num_bytes += v41::stored_bytes(parameter);
  if (num_bytes > kMaxBytes) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the weights would take {} bytes, needed at most {}", num_bytes, kMaxBytes),
                "model-config");
  }
  return num_bytes;
}

Status make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return fail(ErrorCode::kFailedPrecondition,
                fmt::format("cannot make the folder {}: {}", folder.string(), error.message()), "folder");
  }
  if (std::filesystem::is_empty(folder, error) && !error) return {};
  return fail(ErrorCode::kFailedPrecondition, fmt::format("{} is not an empty folder", folder.string()), "folder");
}

Status write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) return fail(ErrorCode::kFailedPrecondition, fmt::format("cannot write {}", path.string()));
  return {};
}

std::string generation_config_json(const ModelConfig& config) {
  return json::serialize(json::object{{"bos_token_id", config.bos_id},
                                      {"eos_token_id", config.eos_id},
                                      {"do_sample", true},
                                      {"temperature", 1.0},
                                      {"top_p", 0.95}});
}

std::string tokenizer_config_json() {
  return json::serialize(json::object{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                      {"add_bos_token", true},
                                      {"add_eos_token", false},
                                      {"bos_token", chat::kBos},
                                      {"eos_token", chat::kEos},
                                      {"pad_token", kPad}});
}

Status make(const MakeTinyCommand& command) {
  auto config = read_model_config(command.model_config);
  if (!config) return std::unexpected(config.error());
  const auto vocabulary = make_vocabulary(*config);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  const std::string tokenizer = tokenizer_json(*vocabulary);
  const auto classes = settle_engram(tokenizer, *config);
  if (!classes) return std::unexpected(classes.error());
  const auto num_bytes = check_size(config->numbers);
  if (!num_bytes) return std::unexpected(num_bytes.error());

  const std::filesystem::path folder(command.folder);
  if (Status status = make_folder(folder); !status) return status;
  std::vector<std::pair<const char*, std::string>> files{{"config.json", json::serialize(config->json)},
                                                         {"generation_config.json", generation_config_json(*config)},
                                                         {"tokenizer.json", tokenizer},
                                                         {"tokenizer_config.json", tokenizer_config_json()}};
  if (!classes->empty()) {
    const auto* first = reinterpret_cast<const char*>(classes->data());
    files.emplace_back("engram_token_map.i32", std::string(first, classes->size() * sizeof(std::int32_t)));
  }
  for (const auto& [name, content] : files) {
    if (Status status = write_file(folder / name, content); !status) return status;
  }
  if (Status status = v41::write_tiny_weights(config->numbers, command.seed, command.folder); !status) return status;
  fmt::print("{}: {:.1f} MB of weights\n", command.folder, static_cast<double>(*num_bytes) / 1e6);
  return {};
}

}  // namespace

int run(const MakeTinyCommand& command) {
  const Status status = make(command);
  return status ? 0 : report(status.error());
}

}  // namespace thalweg::apps
