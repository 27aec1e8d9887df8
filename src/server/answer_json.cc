#include "server/answer_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace thalweg::server {
namespace {

std::string token_text(const text::Tokenizer& tokenizer, const AnswerOptions& options, std::int32_t id) {
  if (options.tokens_as_ids) return fmt::format("token_id:{}", id);
  return to_valid_utf8(tokenizer.token_bytes(id));
}

void write_bytes(JsonWriter& json, std::string_view bytes) {
  json.raw("[");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) json.raw(",");
    json.integer(static_cast<unsigned char>(bytes[i]));
  }
  json.raw("]");
}

/// `bytes` are those of the text, so a token that leaves no text has none.
void write_chat_token(JsonWriter& json, const text::Tokenizer& tokenizer, const AnswerOptions& options,
                      const TokenLogprob& token, bool leaves_text) {
  const bool is_hidden = !leaves_text || (options.skip_special_tokens && tokenizer.is_special(token.token_id));
  json.raw(R"({"token":)").string(token_text(tokenizer, options, token.token_id));
  json.raw(R"(,"logprob":)").number(token.logprob).raw(R"(,"bytes":)");
  write_bytes(json, is_hidden ? std::string_view() : tokenizer.token_bytes(token.token_id));
}

void write_chat_logprobs(JsonWriter& json, const AnswerOptions& options, const text::Tokenizer& tokenizer,
                         std::span<const TokenEntry> entries) {
  json.raw(R"({"content":[)");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) json.raw(",");
    write_chat_token(json, tokenizer, options, entries[i].chosen, !entries[i].is_end);
    json.raw(R"(,"top_logprobs":[)");
    for (std::size_t k = 0; k < entries[i].top.size(); ++k) {
      if (k > 0) json.raw(",");
      write_chat_token(json, tokenizer, options, entries[i].top[k], true);
      json.raw("}");
    }
    json.raw("]}");
  }
  json.raw(R"(],"refusal":null})");
}

/// Two ids may have the same text; the sampled one keeps its place in the map.
void write_top_map(JsonWriter& json, const AnswerOptions& options, const text::Tokenizer& tokenizer,
                   const TokenEntry& entry) {
  std::vector<std::string> written = {token_text(tokenizer, options, entry.chosen.token_id)};
  json.raw("{").string(written.front()).raw(":").number(entry.chosen.logprob);
  for (const TokenLogprob& token : entry.top) {
    std::string text = token_text(tokenizer, options, token.token_id);
    if (std::ranges::find(written, text) != written.end()) continue;
    json.raw(",").string(text).raw(":").number(token.logprob);
    written.push_back(std::move(text));
  }
  json.raw("}");
}

void write_completion_logprobs(JsonWriter& json, const AnswerOptions& options, const text::Tokenizer& tokenizer,
                               std::span<const TokenEntry> entries) {
  const auto list = [&](std::string_view name, auto write) {
    json.raw(name);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) json.raw(",");
      write(entries[i]);
    }
    json.raw("]");
  };
  list(R"({"tokens":[)", [&](const TokenEntry& e) { json.string(token_text(tokenizer, options, e.chosen.token_id)); });
  list(R"(,"token_logprobs":[)",
       [&](const TokenEntry& e) { e.has_logprob ? json.number(e.chosen.logprob) : json.raw("null"); });
  list(R"(,"top_logprobs":[)", [&](const TokenEntry& e) {
    e.has_logprob ? write_top_map(json, options, tokenizer, e) : static_cast<void>(json.raw("null"));
  });
  list(R"(,"text_offset":[)", [&](const TokenEntry& e) { json.integer(e.text_offset); });
  json.raw("}");
}

}  // namespace

std::string head_json(const AnswerHead& head, std::string_view object) {
  std::string text;
  JsonWriter json(text);
  json.raw(R"("id":)").string(head.id).raw(R"(,"object":)").string(object);
  json.raw(R"(,"created":)").integer(head.created).raw(R"(,"model":)").string(head.model);
  return text;
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.raw(R"({"prompt_tokens":)").integer(usage.num_prompt_tokens);
  json.raw(R"(,"completion_tokens":)").integer(usage.num_output_tokens);
  json.raw(R"(,"total_tokens":)").integer(usage.num_prompt_tokens + usage.num_output_tokens);
  json.raw(R"(,"prompt_tokens_details":{"cached_tokens":)").integer(usage.num_cached_tokens).raw("}");
  if (usage.num_reasoning_tokens > 0) {
    json.raw(R"(,"completion_tokens_details":{"reasoning_tokens":)").integer(usage.num_reasoning_tokens).raw("}");
  }
  json.raw("}");
}

void write_ids(JsonWriter& json, std::span<const std::int32_t> ids) {
  json.raw("[");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) json.raw(",");
    json.integer(ids[i]);
  }
  json.raw("]");
}

void write_reasoning(JsonWriter& json, std::string_view reasoning) {
  json.raw(R"("reasoning_content":)").string(reasoning).raw(R"(,"reasoning":)").string(reasoning);
}

void write_tool_calls(JsonWriter& json, const AnswerHead& head, std::int32_t choice,
                      std::span<const text::ToolCallDelta> calls) {
  const std::string_view answer_id = std::string_view(head.id).substr(head.id.find('-') + 1);
  json.raw("[");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) json.raw(",");
    json.raw(R"({"index":)").integer(calls[i].index);
    const bool is_first = !calls[i].name.empty();
    if (is_first) {
      json.raw(R"(,"id":)").string(fmt::format("call_{}_{}_{}", answer_id, choice, calls[i].index));
      json.raw(R"(,"type":"function")");
    }
    json.raw(R"(,"function":{)");
    if (is_first) json.raw(R"("name":)").string(calls[i].name).raw(",");
    json.raw(R"("arguments":)").string(calls[i].arguments).raw("}}");
  }
  json.raw("]");
}

void write_stop_reason(JsonWriter& json, const ChoiceFinish& finish) {
  if (const auto* text = std::get_if<std::string>(&finish.stop_reason)) {
    json.string(*text);
  } else if (const auto* id = std::get_if<std::int32_t>(&finish.stop_reason)) {
    json.integer(*id);
  } else {
    json.raw("null");
  }
}

void write_logprobs(JsonWriter& json, const AnswerOptions& options, const text::Tokenizer& tokenizer,
                    std::span<const TokenEntry> entries) {
  if (!options.logprobs) {
    json.raw("null");
  } else if (options.is_chat) {
    write_chat_logprobs(json, options, tokenizer, entries);
  } else {
    write_completion_logprobs(json, options, tokenizer, entries);
  }
}

void write_prompt_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer, std::span<const TokenEntry> entries) {
  const auto write_token = [&](const TokenLogprob& token) {
    json.raw("\"").integer(token.token_id).raw(R"(":{"logprob":)").number(token.logprob);
    json.raw(R"(,"rank":)").integer(token.rank).raw(R"(,"decoded_token":)");
    json.string(to_valid_utf8(tokenizer.token_bytes(token.token_id))).raw("}");
  };
  json.raw("[");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) json.raw(",");
    if (!entries[i].has_logprob) {
      json.raw("null");
      continue;
    }
    json.raw("{");
    write_token(entries[i].chosen);
    for (const TokenLogprob& token : entries[i].top) {
      if (token.token_id == entries[i].chosen.token_id) continue;
      json.raw(",");
      write_token(token);
    }
    json.raw("}");
  }
  json.raw("]");
}

}  // namespace thalweg::server
