// DeepSeek-V4.1's conversations as prompts: the rules of the specification's section 1.5 over plain values.
//
// Where the release's first encoder and DeepSeek's later `deepseek-recipe` package differ, this follows the package:
// an assistant's turn is opened right before it (or at the end), so reminders stand before the turn, a conversation may
// end with any role, without tools every finished turn loses its reasoning, and empty system messages are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/prompt_text.h"

namespace thalweg::text::deepseek_v41 {

enum class Role { kSystem, kDeveloper, kUser, kAssistant, kTool, kLatestReminder };

/// A part of a user's message: text, or the result of a tool call.
struct Block {
  std::string text;
  bool is_tool_result = false;
  std::string call_id;  // of a result
};

struct Parameter {
  std::string name;
  std::string value;       // the string itself, or JSON
  bool is_string = false;  // then `value` is written as it is
};

struct ToolCall {
  std::string id;
  std::string name;
  std::vector<Parameter> parameters;
};

struct Message {
  Role role = Role::kUser;
  std::string content;
  std::vector<Block> blocks;  // kUser and kTool have these in place of content
  std::string reasoning;
  std::vector<ToolCall> calls;
  std::string_view task;                  // token that asks for something else than an answer; empty: none
  std::vector<std::string> tool_schemas;  // JSON, one line each
  std::string response_schema;            // JSON; empty: any answer
  bool without_eos = false;
};

struct PromptOptions {
  bool thinking = true;
  bool drop_thinking = true;  // forget the reasoning of earlier turns, if no message defines tools
  int effort = 50;            // 1 to 100; written when thinking
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is an assistant's and stays open; no generation prompt
};

/// The token of a task, empty for an unknown one.
std::string_view task_token(std::string_view task);

/// Messages in the order of the conversation; tool results are merged into user messages here.
PromptText render_prompt(std::vector<Message> messages, const PromptOptions& options);

/// What precedes and follows the schemas where tools are defined.
extern const std::string_view kToolsHead;
extern const std::string_view kToolsTail;

}  // namespace thalweg::text::deepseek_v41
