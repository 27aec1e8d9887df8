#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "server/chat_messages.h"
#include "server/field_rules.h"
#include "server/json_reader.h"

namespace thalweg::server {
namespace {
namespace json = boost::json;

// Accepted so that clients which always send them work; docs/api.md lists them.
constexpr std::string_view kIgnoredFields[] = {"user",
                                               "metadata",
                                               "store",
                                               "service_tier",
                                               "safety_identifier",
                                               "prompt_cache_key",
                                               "prompt_cache_retention",
                                               "verbosity",
                                               "prediction",
                                               "web_search_options",
                                               "moderation",
                                               "cache_prompt",
                                               "session_id",
                                               "kv_transfer_params",
                                               "spaces_between_special_tokens",
                                               "include_reasoning",
                                               "separate_reasoning",
                                               "timings_per_token",
                                               "rid"};

// They would change the answer, so leaving them out in silence would be wrong.
constexpr std::string_view kUnsupportedFields[] = {
    "structured_outputs",    "guided_json", "guided_regex", "guided_choice",  "guided_grammar", "grammar",
    "json_schema",           "regex",       "ebnf",         "structural_tag", "stop_regex",     "logprob_token_ids",
    "thinking_token_budget", "lora_path",   "images",       "audio",          "input_embeds",   "prompt_embeds"};

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

void read_unsupported(FieldReader& reader) {
  for (const std::string_view name : kIgnoredFields) reader.ignore(name);
  for (const std::string_view name : kUnsupportedFields) {
    if (reader.find(name) != nullptr) reader.refuse(name, "is not supported by this build");
  }
  if (const json::object* format = reader.object("response_format")) {
    const json::value* type = format->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      reader.refuse("response_format", "has no type");
    } else if (view(type->get_string()) != "text") {
      reader.refuse("response_format", fmt::format("of type \"{}\" is not supported by this build; \"text\" is",
                                                   view(type->get_string())));
    }
  }
  for (const std::string_view name : {"functions", "function_call"}) {
    if (reader.find(name) != nullptr) reader.refuse(name, "is the older form; use tools and tool_choice");
  }
  if (const json::array* modalities = reader.array("modalities")) {
    for (const json::value& modality : *modalities) {
      if (!modality.is_string() || view(modality.get_string()) != "text") {
        reader.refuse("modalities", "can only be [\"text\"]");
      }
    }
  }
  bool uses_beam_search = false;
  if (reader.boolean("use_beam_search", uses_beam_search) && uses_beam_search) {
    reader.refuse("use_beam_search", "is not supported by this build");
  }
  std::int32_t best_of = 1;
  reader.integer("best_of", best_of);
}

/// Ids of `values`, each an integer below `vocab_size`; 1.0 is none, or a client's floats would pass as text.
std::vector<std::int32_t> read_token_ids(FieldReader& reader, std::string_view name, const json::array& values,
                                         std::int32_t vocab_size) {
  std::vector<std::int32_t> ids;
  ids.reserve(values.size());
  for (const json::value& value : values) {
    const std::int64_t* id = value.if_int64();
    if (id == nullptr || *id < 0 || *id >= vocab_size) {
      reader.refuse(
          name, fmt::format("has the entry {}; token ids are integers in [0, {})", describe_value(value), vocab_size));
      return {};
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

/// A string or an array of strings.
std::vector<std::string> read_strings(FieldReader& reader, std::string_view name, std::int32_t max_count,
                                      std::int32_t max_bytes) {
  std::vector<std::string> strings;
  const json::value* value = reader.find(name);
  if (value == nullptr) return strings;
  const auto add = [&](const json::value& entry) {
    if (!entry.is_string()) {
      reader.refuse(name, fmt::format("has {}, a string or an array of strings is needed", describe_value(entry)));
    } else if (entry.get_string().empty()) {
      reader.refuse(name, "has an empty string");
    } else if (entry.get_string().size() > static_cast<std::size_t>(max_bytes)) {
      reader.refuse(
          name, fmt::format("has a string of {} bytes, at most {} are allowed", entry.get_string().size(), max_bytes));
    } else if (std::ranges::find(strings, view(entry.get_string())) == strings.end()) {
      strings.emplace_back(view(entry.get_string()));
    }
    return !reader.failed() && strings.size() <= static_cast<std::size_t>(max_count);
  };
  if (!value->is_array()) {
    add(*value);
    return strings;
  }
  for (const json::value& entry : value->get_array()) {
    if (!add(entry)) break;
  }
  if (strings.size() > static_cast<std::size_t>(max_count)) {
    reader.refuse(name, fmt::format("has {} entries, at most {} different ones are allowed", value->get_array().size(),
                                    max_count));
  }
  return strings;
}

void read_logit_bias(FieldReader& reader, SamplingParams& sampling, std::int32_t vocab_size) {
  const json::object* biases = reader.object("logit_bias");
  if (biases == nullptr) return;
  const NumberRule& rule = number_rule("logit_bias");
  sampling.logit_bias.reserve(biases->size());
  for (const auto& [key, value] : *biases) {
    const std::string_view digits(key.data(), key.size());
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || end != digits.data() + digits.size() || id < 0 || id >= vocab_size) {
      return reader.refuse("logit_bias", fmt::format("has the key \"{}\"; keys are token ids in [0, {})",
                                                     digits.substr(0, 32), vocab_size));
    }
    if (!value.is_number() || !in_range(rule, value.to_number<double>())) {
      return reader.refuse("logit_bias",
                           fmt::format("has the value {} for token {}, {}", describe_value(value), id, describe(rule)));
    }
    sampling.logit_bias.push_back({.token_id = id, .bias = value.to_number<float>()});
  }
}

void read_sampling(FieldReader& reader, const ServerOptions& options, std::int32_t vocab_size, OpenAiRequest& request) {
  SamplingParams& sampling = request.generate.sampling;
  sampling = options.default_sampling;
  reader.number("temperature", sampling.temperature);
  reader.number("top_p", sampling.top_p);
  reader.integer("top_k", sampling.top_k);
  reader.number("min_p", sampling.min_p);
  reader.number("repetition_penalty", sampling.repetition_penalty);
  reader.number("presence_penalty", sampling.presence_penalty);
  reader.number("frequency_penalty", sampling.frequency_penalty);
  read_logit_bias(reader, sampling, vocab_size);
  std::int64_t seed = 0;
  if (reader.integer("seed", seed)) sampling.seed = static_cast<std::uint64_t>(seed);
  reader.integer("min_tokens", sampling.min_tokens);
  reader.boolean("ignore_eos", sampling.ignore_eos);
  if (const json::array* ids = reader.array("stop_token_ids")) {
    sampling.stop_token_ids = read_token_ids(reader, "stop_token_ids", *ids, vocab_size);
  }
  if (const json::array* ids = reader.array("allowed_token_ids")) {
    if (ids->empty()) reader.refuse("allowed_token_ids", "is empty, nothing could be generated");
    sampling.allowed_token_ids = read_token_ids(reader, "allowed_token_ids", *ids, vocab_size);
  }
  if (reader.array("bad_words") != nullptr) {
    request.bad_words = read_strings(reader, "bad_words", options.max_bad_words, options.max_stop_bytes);
  }
}

void read_length(FieldReader& reader, OpenAiRequest& request) {
  std::int32_t tokens = 0;
  // The newer name wins; llama-server's -1 means "no limit".
  for (const std::string_view name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    if (!reader.integer(name, tokens)) continue;
    if (tokens < 0) continue;
    request.max_tokens = tokens;
    request.max_tokens_field = name;
  }
  if (request.max_tokens && request.generate.sampling.min_tokens > *request.max_tokens) {
    reader.refuse("min_tokens", fmt::format("is {}, above {} = {}", request.generate.sampling.min_tokens,
                                            request.max_tokens_field, *request.max_tokens));
  }
}

void read_stream(FieldReader& reader, AnswerOptions& answer) {
  reader.boolean("stream", answer.stream);
  reader.integer("stream_interval", answer.stream_interval);
  const json::object* stream_options = reader.object("stream_options");
  if (stream_options == nullptr) return;
  if (!answer.stream) return reader.refuse("stream_options", "needs stream: true");
  FieldReader fields(*stream_options, "stream_options.");
  fields.boolean("include_usage", answer.include_usage);
  fields.boolean("continuous_usage_stats", answer.continuous_usage);
  if (fields.failed()) reader.fail(*fields.error());
}

void read_answer(FieldReader& reader, const ServerOptions& options, OpenAiRequest& request) {
  AnswerOptions& answer = request.answer;
  read_stream(reader, answer);
  answer.stop = read_strings(reader, "stop", options.max_stop_strings, options.max_stop_bytes);
  reader.boolean("include_stop_str_in_output", answer.include_stop);
  reader.boolean("skip_special_tokens", answer.skip_special_tokens);
  reader.boolean("return_token_ids", answer.return_token_ids);
  reader.boolean("return_tokens_as_token_ids", answer.tokens_as_ids);
  reader.boolean("echo", answer.echo);
  if (reader.integer("prompt_logprobs", request.generate.num_prompt_logprobs)) {
    answer.prompt_logprobs = true;
    if (answer.stream) reader.refuse("prompt_logprobs", "cannot be streamed");
  }
}

void read_cache_salt(FieldReader& reader, GenerateRequest& generate) {
  constexpr std::string_view kForbidden("@/\\\0", 4);
  if (!reader.string("cache_salt", generate.cache_salt)) return;
  if (generate.cache_salt.empty() || generate.cache_salt.size() > kMaxCacheSaltBytes) {
    reader.refuse("cache_salt",
                  fmt::format("has {} bytes, must have 1 to {}", generate.cache_salt.size(), kMaxCacheSaltBytes));
  } else if (generate.cache_salt.find_first_of(kForbidden) != std::string::npos) {
    reader.refuse("cache_salt", "must not contain @, /, \\ or NUL");
  }
}

/// The fields that both routes have.
void read_common(FieldReader& reader, const ServerOptions& options, std::int32_t vocab_size, OpenAiRequest& request) {
  reader.string("model", request.model);
  reader.string("request_id", request.request_id);
  read_unsupported(reader);
  read_sampling(reader, options, vocab_size, request);
  read_length(reader, request);
  read_answer(reader, options, request);
  read_cache_salt(reader, request.generate);
  reader.integer("n", request.generate.num_sequences);
  reader.integer("priority", request.generate.priority);
  if (float timeout_s = 0.0F; reader.number("timeout", timeout_s)) request.generate.timeout_s = timeout_s;
  reader.boolean("add_special_tokens", request.add_special_tokens);
  std::int32_t truncate = 0;
  if (reader.integer("truncate_prompt_tokens", truncate)) {
    if (truncate == 0) reader.refuse("truncate_prompt_tokens", "is 0, must be -1 or at least 1");
    request.truncate_prompt_tokens = truncate;
  }
  std::string side;
  if (reader.string("truncation_side", side) && side != "left") {
    reader.refuse("truncation_side", fmt::format("is \"{}\", only \"left\" is supported", side));
  }
}

ApiResult<OpenAiRequest> finish(FieldReader& reader, const ServerOptions& options, OpenAiRequest& request) {
  if (reader.failed()) return std::unexpected(*reader.error());
  request.unknown_fields = reader.unknown_fields();
  if (options.refuse_unknown_fields && !request.unknown_fields.empty()) {
    const std::string& name = request.unknown_fields.front();
    return refuse(fmt::format("{} is no field of this request", name), name);
  }
  return std::move(request);
}

void read_chat_logprobs(FieldReader& reader, OpenAiRequest& request) {
  AnswerOptions& answer = request.answer;
  reader.boolean("logprobs", answer.logprobs);
  if (reader.integer("top_logprobs", answer.num_top_logprobs) && !answer.logprobs && answer.num_top_logprobs > 0) {
    reader.refuse("top_logprobs", "needs logprobs: true");
  }
  if (answer.logprobs) request.generate.sampling.num_logprobs = answer.num_top_logprobs;
}

void read_completion_logprobs(FieldReader& reader, OpenAiRequest& request) {
  AnswerOptions& answer = request.answer;
  // Some clients send chat's boolean here: false is "none".
  if (const json::value* value = reader.find("logprobs"); value != nullptr && value->is_bool() && !value->get_bool())
    return;
  if (!reader.integer("logprobs", answer.num_top_logprobs)) return;
  answer.logprobs = true;
  request.generate.sampling.num_logprobs = answer.num_top_logprobs;
  if (answer.echo) {
    request.generate.num_prompt_logprobs = std::max(request.generate.num_prompt_logprobs, answer.num_top_logprobs);
  }
}

void read_prompt_list(FieldReader& reader, std::string_view name, const json::array& list, std::int32_t vocab_size,
                      std::int32_t max_prompts, std::vector<Prompt>& prompts) {
  if (list.empty()) return reader.refuse(name, "is empty");
  const bool is_list_of_prompts = list.front().is_string() || list.front().is_array();
  if (is_list_of_prompts && list.size() > static_cast<std::size_t>(max_prompts)) {
    return reader.refuse(name, fmt::format("has {} prompts, at most {} are allowed", list.size(), max_prompts));
  }
  if (list.front().is_string()) {
    for (const json::value& entry : list) {
      if (!entry.is_string()) return reader.refuse(name, fmt::format("mixes strings and {}", describe_value(entry)));
      prompts.emplace_back(std::string(view(entry.get_string())));
    }
  } else if (list.front().is_array()) {
    for (const json::value& entry : list) {
      if (!entry.is_array()) return reader.refuse(name, fmt::format("mixes arrays and {}", describe_value(entry)));
      if (entry.get_array().empty()) return reader.refuse(name, "has an empty list of token ids");
      prompts.emplace_back(read_token_ids(reader, name, entry.get_array(), vocab_size));
    }
  } else {
    prompts.emplace_back(read_token_ids(reader, name, list, vocab_size));
  }
}

void read_prompts(FieldReader& reader, const ServerOptions& options, std::int32_t vocab_size, OpenAiRequest& request) {
  const json::array* ids = reader.array("prompt_token_ids");
  const json::value* prompt = reader.find("prompt");
  if (reader.failed()) return;
  if (ids != nullptr && prompt != nullptr) return reader.refuse("prompt_token_ids", "and prompt exclude each other");
  if (ids != nullptr) {
    read_prompt_list(reader, "prompt_token_ids", *ids, vocab_size, options.max_prompts, request.prompts);
  } else if (prompt == nullptr) {
    return reader.refuse("prompt", "is missing");
  } else if (prompt->is_string()) {
    request.prompts.emplace_back(std::string(view(prompt->get_string())));
  } else if (prompt->is_array()) {
    read_prompt_list(reader, "prompt", prompt->get_array(), vocab_size, options.max_prompts, request.prompts);
  } else {
    return reader.refuse(
        "prompt", fmt::format("is {}, must be text, token ids or a list of one of them", describe_value(*prompt)));
  }
  const auto num_prompts = static_cast<std::int64_t>(request.prompts.size());
  if (num_prompts * request.generate.num_sequences > options.max_choices) {
    reader.refuse("n", fmt::format("times the number of prompts is {}, at most {} choices are allowed",
                                   num_prompts * request.generate.num_sequences, options.max_choices));
  }
  // Each prompt becomes a request with its own copy of the list.
  constexpr std::int64_t kMaxAllowedIdsInAll = 4 << 20;
  const auto num_allowed = static_cast<std::int64_t>(request.generate.sampling.allowed_token_ids.size());
  if (num_prompts * num_allowed > kMaxAllowedIdsInAll) {
    reader.refuse("allowed_token_ids", fmt::format("has {} ids for {} prompts, together more than {}", num_allowed,
                                                   num_prompts, kMaxAllowedIdsInAll));
  }
}

}  // namespace

ApiResult<OpenAiRequest> parse_chat_request(std::string_view body, const ServerOptions& options,
                                            std::int32_t vocab_size, bool reads_parts) {
  const ApiResult<json::object> object = parse_json_object(body, options.max_json_depth);
  if (!object) return std::unexpected(object.error());
  FieldReader reader(*object);
  OpenAiRequest request;
  request.answer.is_chat = true;
  request.conversation.emplace();
  read_common(reader, options, vocab_size, request);
  read_chat_logprobs(reader, request);
  std::string last_assistant_text;
  read_conversation(reader, reads_parts, *request.conversation, last_assistant_text);
  if (request.answer.echo) request.echoed_message = std::move(last_assistant_text);
  if (request.max_tokens == 0) reader.refuse(request.max_tokens_field, "is 0, must be at least 1");
  return finish(reader, options, request);
}

ApiResult<OpenAiRequest> parse_completion_request(std::string_view body, const ServerOptions& options,
                                                  std::int32_t vocab_size) {
  const ApiResult<json::object> object = parse_json_object(body, options.max_json_depth);
  if (!object) return std::unexpected(object.error());
  FieldReader reader(*object);
  OpenAiRequest request;
  read_common(reader, options, vocab_size, request);
  read_completion_logprobs(reader, request);
  read_prompts(reader, options, vocab_size, request);
  std::string suffix;
  if (reader.string("suffix", suffix) && !suffix.empty()) reader.refuse("suffix", "is not supported by this build");
  if (request.max_tokens == 0 && !request.answer.echo && !request.answer.prompt_logprobs) {
    reader.refuse(request.max_tokens_field, "is 0, which needs echo or prompt_logprobs");
  }
  return finish(reader, options, request);
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServerOptions& options,
                                                  bool reads_parts) {
  const ApiResult<json::object> object = parse_json_object(body, options.max_json_depth);
  if (!object) return std::unexpected(object.error());
  FieldReader reader(*object);
  TokenizeRequest request;
  reader.string("model", request.model);
  std::string prompt;
  // llama-server calls it content.
  if (reader.string("prompt", prompt) || reader.string("content", prompt)) request.prompt = std::move(prompt);
  reader.boolean("add_special_tokens", request.add_special_tokens);
  reader.boolean("add_special", request.add_special_tokens);
  reader.boolean("parse_special", request.parse_special);
  reader.boolean("return_token_strs", request.return_token_strings);
  reader.boolean("with_pieces", request.return_token_strings);
  if (reader.find("messages") != nullptr) {
    if (request.prompt) reader.refuse("messages", "and prompt exclude each other");
    std::string last_assistant_text;
    request.conversation.emplace();
    read_conversation(reader, reads_parts, *request.conversation, last_assistant_text);
  } else if (!request.prompt && !reader.failed()) {
    reader.refuse("prompt", "is missing");
  }
  if (reader.failed()) return std::unexpected(*reader.error());
  return request;
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ServerOptions& options,
                                                      std::int32_t vocab_size) {
  const ApiResult<json::object> object = parse_json_object(body, options.max_json_depth);
  if (!object) return std::unexpected(object.error());
  FieldReader reader(*object);
  DetokenizeRequest request;
  reader.string("model", request.model);
  if (const json::array* tokens = reader.array("tokens")) {
    request.tokens = read_token_ids(reader, "tokens", *tokens, vocab_size);
  } else if (!reader.failed()) {
    reader.refuse("tokens", "is missing");
  }
  if (reader.failed()) return std::unexpected(*reader.error());
  return request;
}

}  // namespace thalweg::server
