// The JSON of parts that streams and bodies share.
#pragma once

#include <span>
#include <string>

#include "server/answer.h"
#include "server/json_writer.h"

namespace thalweg::server {

/// `"id":..,"object":..,"created":..,"model":..` of a chunk or a body, without braces.
std::string head_json(const AnswerHead& head, std::string_view object);

void write_usage(JsonWriter& json, const Usage& usage);
void write_ids(JsonWriter& json, std::span<const std::int32_t> ids);
/// `"reasoning_content":..,"reasoning":..`: the name that most clients read and vLLM's.
void write_reasoning(JsonWriter& json, std::string_view reasoning);
/// `[{"index":..,"id":..,"type":"function","function":{..}},..]`, the id and the name where a call begins.
void write_tool_calls(JsonWriter& json, const AnswerHead& head, std::int32_t choice,
                      std::span<const text::ToolCallDelta> calls);
void write_stop_reason(JsonWriter& json, const ChoiceFinish& finish);

/// Chat's `{"content":[..],"refusal":null}`, completions' `{"tokens":[..],..}`, or null when not asked for.
void write_logprobs(JsonWriter& json, const AnswerOptions& options, const text::Tokenizer& tokenizer,
                    std::span<const TokenEntry> entries);

/// `[null,{"id":{"logprob":..,"rank":..,"decoded_token":..}},..]`
void write_prompt_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer, std::span<const TokenEntry> entries);

}  // namespace thalweg::server
