#include "server/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace thalweg::server {
namespace {

ApiError cancelled() { return ApiError(503, "cancelled", "the request was cancelled"); }

/// A word may begin a text or follow a space; tokenizers write the two differently.
ApiResult<void> encode_bad_words(const std::vector<std::string>& words, const text::Tokenizer& tokenizer,
                                 SamplingParams& sampling) {
  for (const std::string& word : words) {
    for (const std::string& form : {word, " " + word}) {
      Result<std::vector<std::int32_t>> ids = tokenizer.encode(form, {.add_special_tokens = false});
      if (!ids) return std::unexpected(ApiError(ids.error()));
      if (ids->empty() || std::ranges::find(sampling.bad_words, *ids) != sampling.bad_words.end()) continue;
      sampling.bad_words.push_back(std::move(*ids));
    }
  }
  return {};
}

ApiResult<std::vector<std::int32_t>> prompt_ids(const Prompt& prompt, const OpenAiRequest& request,
                                                const ServedModel& model) {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) return *ids;
  Result<std::vector<std::int32_t>> ids =
      model.tokenizer.encode(std::get<std::string>(prompt), {.add_special_tokens = request.add_special_tokens});
  if (!ids) return std::unexpected(ApiError(ids.error()));
  return std::move(*ids);
}

ApiResult<std::vector<std::int32_t>> conversation_ids(const text::Conversation& conversation,
                                                      const ServedModel& model) {
  if (model.chat_template == nullptr) {
    return refuse("this model has no chat template; use /v1/completions", "messages");
  }
  Result<std::vector<std::int32_t>> ids = model.chat_template->encode(conversation, model.tokenizer);
  if (!ids) return std::unexpected(ApiError(ids.error()));
  return std::move(*ids);
}

/// Keeps the end of the prompt, as asked for.
void truncate(std::vector<std::int32_t>& ids, const OpenAiRequest& request, std::int32_t max_model_len) {
  if (!request.truncate_prompt_tokens) return;
  const std::int32_t wanted = *request.truncate_prompt_tokens;
  const std::int64_t limit = wanted > 0 ? wanted : max_model_len - std::max(request.max_tokens.value_or(1), 1);
  const auto size = static_cast<std::int64_t>(ids.size());
  if (size > std::max<std::int64_t>(limit, 1)) ids.erase(ids.begin(), ids.end() - std::max<std::int64_t>(limit, 1));
}

ApiError too_long(std::string message, std::string param) {
  return ApiError(400, "context_length_exceeded", std::move(message), std::move(param));
}

/// Tokens to generate after a prompt of `num_prompt_tokens`.
ApiResult<std::int32_t> output_length(const OpenAiRequest& request, std::int64_t num_prompt_tokens,
                                      std::int32_t max_model_len) {
  constexpr std::int32_t kCompletionDefault = 16;
  const char* prompt_field = request.answer.is_chat ? "messages" : "prompt";
  const std::int64_t room = max_model_len - num_prompt_tokens;
  // max_tokens 0 only reads the prompt.
  if (room < (request.max_tokens == 0 ? 0 : 1)) {
    return std::unexpected(
        too_long(fmt::format("the prompt has {} tokens; the context of {} tokens leaves no room for output",
                             num_prompt_tokens, max_model_len),
                 prompt_field));
  }
  if (request.max_tokens && *request.max_tokens > room) {
    return std::unexpected(
        too_long(fmt::format("the prompt has {} tokens and {} asks for {}, together {}; the context has {}",
                             num_prompt_tokens, request.max_tokens_field, *request.max_tokens,
                             num_prompt_tokens + *request.max_tokens, max_model_len),
                 request.max_tokens_field));
  }
  if (request.max_tokens) return *request.max_tokens;
  const std::int64_t wanted =
      request.answer.is_chat ? room : std::max(kCompletionDefault, request.generate.sampling.min_tokens);
  if (request.generate.sampling.min_tokens > room) {
    return refuse(
        fmt::format("min_tokens is {}, the context leaves room for {}", request.generate.sampling.min_tokens, room),
        "min_tokens");
  }
  return static_cast<std::int32_t>(std::min(wanted, room));
}

ApiResult<std::string> echo_text(const Prompt& prompt, const OpenAiRequest& request, const ServedModel& model) {
  if (!request.answer.echo) return std::string();
  if (const auto* text = std::get_if<std::string>(&prompt); text != nullptr && !request.truncate_prompt_tokens)
    return *text;
  const ApiResult<std::vector<std::int32_t>> ids = prompt_ids(prompt, request, model);
  if (!ids) return std::unexpected(ids.error());
  std::vector<std::int32_t> kept = *ids;
  truncate(kept, request, model.description.max_model_len);
  Result<std::string> text = model.tokenizer.decode(kept, request.answer.skip_special_tokens);
  if (!text) return std::unexpected(ApiError(text.error()));
  return std::move(*text);
}

ApiResult<PreparedPrompt> finish_prompt(std::vector<std::int32_t> ids, std::string echo, const OpenAiRequest& request,
                                        const ServedModel& model) {
  if (ids.empty()) return refuse("the prompt has no tokens", request.answer.is_chat ? "messages" : "prompt");
  truncate(ids, request, model.description.max_model_len);
  const ApiResult<std::int32_t> max_tokens =
      output_length(request, static_cast<std::int64_t>(ids.size()), model.description.max_model_len);
  if (!max_tokens) return std::unexpected(max_tokens.error());
  PreparedPrompt prompt;
  prompt.generate = request.generate;
  prompt.generate.max_tokens = *max_tokens;
  prompt.part.echo = std::move(echo);
  if (request.answer.return_token_ids || request.answer.prompt_logprobs || request.answer.echo) prompt.part.ids = ids;
  prompt.generate.prompt_ids = std::move(ids);
  return prompt;
}

ApiResult<void> prepare_prompts(const OpenAiRequest& request, const ServedModel& model,
                                const std::atomic<bool>& is_cancelled, std::vector<PreparedPrompt>& out) {
  const auto add = [&](ApiResult<std::vector<std::int32_t>> ids, ApiResult<std::string> echo) -> ApiResult<void> {
    if (!ids) return std::unexpected(ids.error());
    if (!echo) return std::unexpected(echo.error());
    ApiResult<PreparedPrompt> prompt = finish_prompt(std::move(*ids), std::move(*echo), request, model);
    if (!prompt) return std::unexpected(prompt.error());
    out.push_back(std::move(*prompt));
    return {};
  };
  if (request.conversation) return add(conversation_ids(*request.conversation, model), request.echoed_message);
  for (const Prompt& prompt : request.prompts) {
    if (is_cancelled) return std::unexpected(cancelled());
    if (ApiResult<void> added = add(prompt_ids(prompt, request, model), echo_text(prompt, request, model)); !added) {
      return added;
    }
  }
  return {};
}

EndRule end_rule(const OpenAiRequest& request, const ModelDescription& description) {
  const SamplingParams& sampling = request.generate.sampling;
  EndRule rule{.token_ids = sampling.stop_token_ids, .min_tokens = sampling.min_tokens};
  if (!sampling.ignore_eos) {
    rule.token_ids.insert(rule.token_ids.end(), description.eos_token_ids.begin(), description.eos_token_ids.end());
  }
  return rule;
}

}  // namespace

std::int32_t ServedModel::vocab_size() const { return std::min(description.vocab_size, tokenizer.vocab_size()); }

const std::string& ServedModel::name() const {
  return options.served_model_names.empty() ? description.name : options.served_model_names.front();
}

ApiResult<void> ServedModel::check_name(const std::string& requested) const {
  if (requested.empty() || options.accept_any_model_name || requested == name()) return {};
  if (std::ranges::find(options.served_model_names, requested) != options.served_model_names.end()) return {};
  return std::unexpected(ApiError(404, "model_not_found",
                                  fmt::format("the model \"{}\" is not served here; \"{}\" is", requested, name()),
                                  "model"));
}

ApiResult<PreparedRequest> prepare(GenerateRoute route, std::string_view body, const ServedModel& model,
                                   const std::atomic<bool>& is_cancelled) {
  if (is_cancelled) return std::unexpected(cancelled());
  ApiResult<OpenAiRequest> request =
      route == GenerateRoute::kChat ? parse_chat_request(body, model.options, model.vocab_size(), model.reads_parts())
                                    : parse_completion_request(body, model.options, model.vocab_size());
  if (!request) return std::unexpected(request.error());
  if (ApiResult<void> named = model.check_name(request->model); !named) return std::unexpected(named.error());
  if (!request->unknown_fields.empty()) {
    log(LogLevel::kDebug, "ignored unknown request fields: {}", fmt::join(request->unknown_fields, ", "));
  }
  if (is_cancelled) return std::unexpected(cancelled());
  if (ApiResult<void> encoded = encode_bad_words(request->bad_words, model.tokenizer, request->generate.sampling);
      !encoded) {
    return std::unexpected(encoded.error());
  }
  // Before the prompts take copies of lists that may be too long.
  if (Status valid = validate_sampling(request->generate.sampling, model.vocab_size()); !valid) {
    return std::unexpected(ApiError(std::move(valid.error())));
  }
  PreparedRequest prepared;
  prepared.request_id = std::move(request->request_id);
  prepared.answer = request->answer;
  prepared.end_rule = end_rule(*request, model.description);
  if (ApiResult<void> done = prepare_prompts(*request, model, is_cancelled, prepared.prompts); !done) {
    return std::unexpected(done.error());
  }
  if (request->conversation)
    prepared.completion_parser = model.chat_template->completion_parser(*request->conversation);
  return prepared;
}

}  // namespace thalweg::server
