// Conversations to prompts and back, in the model's own form: its Jinja template, or an encoding written here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/completion_parser.h"
#include "text/tokenizer.h"
#include "thalweg/error.h"

namespace thalweg::text {

/// A conversation as the OpenAI protocol has it, in JSON: messages is an array of objects, tools an
/// array or empty, kwargs an object of further template variables (reasoning_effort among them) or empty.
struct Conversation {
  std::string messages_json;
  std::string tools_json;
  std::string kwargs_json;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

/// Immutable after construction; all functions may be called from any thread.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  /// Compiles the template. `bos_token` and `eos_token` are what it calls by these names.
  static Result<std::unique_ptr<ChatTemplate>> compile(std::string_view source, std::string_view bos_token,
                                                       std::string_view eos_token);

  /// The prompt as text. Errors of the template (raise_exception, undefined calls, fuel used up) are
  /// kInvalidArgument with the template's message and line.
  virtual Result<std::string> render(const Conversation& conversation) const = 0;

  /// The prompt as ids: special tokens written by the template are parsed, the same letters inside
  /// message text stay text; BOS is not added a second time.
  virtual Result<std::vector<std::int32_t>> encode(const Conversation& conversation,
                                                   const Tokenizer& tokenizer) const = 0;

  /// Takes the answer to `conversation`, which encode() has accepted, apart; null: its text is content as it stands.
  virtual std::unique_ptr<CompletionParser> completion_parser(const Conversation& /*conversation*/) const {
    return nullptr;
  }

  /// Whether messages may come as clients send them, with content in parts and with roles and tasks of the model's own;
  /// otherwise content is one text.
  virtual bool reads_parts() const { return false; }
};

}  // namespace thalweg::text
