// Requests of /v1/chat/completions and /v1/completions: JSON in, plain values out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/server_options.h"
#include "text/chat_template.h"
#include "thalweg/request.h"

namespace thalweg::server {

/// How the answer is written; nothing here changes which tokens are generated.
struct AnswerOptions {
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool logprobs = false;
  std::int32_t num_top_logprobs = 0;
  bool prompt_logprobs = false;
  bool echo = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // logprob tokens are written "token_id:N"
  bool skip_special_tokens = true;
  bool include_stop = false;
  std::vector<std::string> stop;
  std::int32_t stream_interval = 1;  // tokens per chunk, first and last excepted
};

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct OpenAiRequest {
  std::string model;       // empty: not named
  std::string request_id;  // empty: not given
  AnswerOptions answer;

  // What to compute; prompt_ids are still empty, max_tokens counts only if it was given.
  GenerateRequest generate;
  std::optional<std::int32_t> max_tokens;
  std::string max_tokens_field;
  std::vector<std::string> bad_words;
  bool add_special_tokens = true;
  std::optional<std::int32_t> truncate_prompt_tokens;  // -1: to what fits

  // Exactly one of the two.
  std::vector<Prompt> prompts;
  std::optional<text::Conversation> conversation;
  std::string echoed_message;  // chat with echo: the last message, if it is the assistant's

  std::vector<std::string> unknown_fields;
};

/// `vocab_size`: ids in the request are below it. `reads_parts`: the chat template's reads_parts().
ApiResult<OpenAiRequest> parse_chat_request(std::string_view body, const ServerOptions& options,
                                            std::int32_t vocab_size, bool reads_parts = false);
ApiResult<OpenAiRequest> parse_completion_request(std::string_view body, const ServerOptions& options,
                                                  std::int32_t vocab_size);

/// The body of /tokenize and /detokenize.
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<text::Conversation> conversation;
  bool add_special_tokens = true;
  bool parse_special = false;
  bool return_token_strings = false;
};
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServerOptions& options,
                                                  bool reads_parts = false);

struct DetokenizeRequest {
  std::string model;
  std::vector<std::int32_t> tokens;
};
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ServerOptions& options,
                                                      std::int32_t vocab_size);

}  // namespace thalweg::server
