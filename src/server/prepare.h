// From the bytes of a body to requests that an engine takes: parsing, checking, rendering, tokenising.
// Pure functions of immutable parts, so they run on any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/choice_stream.h"
#include "server/openai_request.h"
#include "server/server_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "thalweg/engine.h"
#include "thalweg/request.h"

namespace thalweg::server {

/// The loaded model and what this server calls it. Outlives all requests.
struct ServedModel {
  const ServerOptions& options;
  const ModelDescription& description;
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate* chat_template;  // null: no chat

  /// Ids of requests are below this: a row of the head and a token of the tokenizer.
  std::int32_t vocab_size() const;
  /// Whether messages reach the chat template with their content in parts.
  bool reads_parts() const { return chat_template != nullptr && chat_template->reads_parts(); }
  /// The name written in answers.
  const std::string& name() const;
  /// 404 for a name that is not served; an empty one is the only model.
  ApiResult<void> check_name(const std::string& requested) const;
};

enum class GenerateRoute { kChat, kCompletion };

struct PreparedPrompt {
  GenerateRequest generate;
  PromptPart part;
};

struct PreparedRequest {
  std::string request_id;
  AnswerOptions answer;
  EndRule end_rule;
  std::vector<PreparedPrompt> prompts;                        // at least one
  std::unique_ptr<text::CompletionParser> completion_parser;  // to be cloned for each choice; null: text is content
};

/// `is_cancelled` is looked at between the parts of the work.
ApiResult<PreparedRequest> prepare(GenerateRoute route, std::string_view body, const ServedModel& model,
                                   const std::atomic<bool>& is_cancelled);

}  // namespace thalweg::server
