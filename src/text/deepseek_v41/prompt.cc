#include "text/deepseek_v41/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "text/deepseek_v41/tokens.h"

namespace thalweg::text::deepseek_v41 {

// The two texts are data of the model's format: what it was trained to see, byte for byte.
constexpr std::string_view kToolsHead =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<｜DSML｜ "
    "calls>\" block like the following:\n\n"
    "<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ parameter>\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

namespace {

constexpr std::string_view kResponseFormat =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

constexpr std::string_view kAction = "<｜action｜>";
constexpr std::pair<std::string_view, std::string_view> kTasks[] = {
    {"action", kAction},        {"query", "<｜query｜>"}, {"authority", "<｜authority｜>"},
    {"domain", "<｜domain｜>"}, {"title", "<｜title｜>"}, {"read_url", "<｜read_url｜>"}};

/// A system message that says nothing leaves no trace.
bool is_empty_system(const Message& message) {
  return message.role == Role::kSystem && message.content.empty() && message.tool_schemas.empty() &&
         message.response_schema.empty();
}

/// Results of tools are shown in the user's turn; a turn of several user messages is one message.
std::vector<Message> merge_user_turns(std::vector<Message> messages) {
  std::vector<Message> merged;
  for (Message& message : messages) {
    const bool is_tool = message.role == Role::kTool;
    if (!is_tool && message.role != Role::kUser) {
      merged.push_back(std::move(message));
      continue;
    }
    Message* last = merged.empty() || merged.back().role != Role::kUser ? nullptr : &merged.back();
    if (last != nullptr && (is_tool || last->task.empty())) {
      std::ranges::move(message.blocks, std::back_inserter(last->blocks));
      continue;
    }
    message.role = Role::kUser;
    merged.push_back(std::move(message));
  }
  return merged;
}

/// Results in the order of the calls they answer, in the places that results had; unknown ones count as the first.
void sort_tool_results(std::vector<Message>& messages) {
  std::unordered_map<std::string_view, std::size_t> order;
  for (Message& message : messages) {
    if (!message.calls.empty()) {
      order.clear();
      for (std::size_t i = 0; i < message.calls.size(); ++i) {
        if (!message.calls[i].id.empty()) order[message.calls[i].id] = i;
      }
    }
    if (order.empty()) continue;
    std::vector<Block> results;
    for (Block& block : message.blocks) {
      if (block.is_tool_result) results.push_back(std::move(block));
    }
    std::ranges::stable_sort(results, {}, [&](const Block& block) {
      const auto found = order.find(block.call_id);
      return found == order.end() ? 0 : found->second;
    });
    auto next = results.begin();
    for (Block& block : message.blocks) {
      if (block.is_tool_result) block = std::move(*next++);
    }
  }
}

/// Index of the last message that asks for an answer; -1 if there is none.
std::ptrdiff_t last_user_index(const std::vector<Message>& messages) {
  for (auto i = std::ssize(messages) - 1; i >= 0; --i) {
    const Role role = messages[static_cast<std::size_t>(i)].role;
    if (role == Role::kUser || role == Role::kDeveloper || (role == Role::kSystem && i > 0)) return i;
  }
  return -1;
}

void drop_developers_of_earlier_turns(std::vector<Message>& messages) {
  const auto end = messages.begin() + std::max<std::ptrdiff_t>(last_user_index(messages), 0);
  const auto kept =
      std::remove_if(messages.begin(), end, [](const Message& message) { return message.role == Role::kDeveloper; });
  messages.erase(kept, end);
}

class Renderer {
 public:
  Renderer(const std::vector<Message>& messages, const PromptOptions& options, bool drops_thinking)
      : messages_(messages), options_(options), drops_thinking_(drops_thinking) {}

  PromptText render() {
    out_.add_special(kBos);
    for (std::size_t i = 0; i < messages_.size(); ++i) add_message(i);
    if (options_.add_generation_prompt && !options_.continue_final_message) open_turn(messages_.size());
    return std::move(out_);
  }

 private:
  void add_message(std::size_t i) {
    const Message& message = messages_[i];
    if (message.role == Role::kSystem || (i == 0 && options_.thinking)) out_.add_special(kSystem);
    if (i == 0 && options_.thinking) {
      out_.add(
          fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                      options_.effort));
    }
    switch (message.role) {
      case Role::kDeveloper:
        out_.add_special(kUser);
        [[fallthrough]];
      case Role::kSystem:
        out_.add(message.content);
        add_tools(message);
        break;
      case Role::kUser:
      case Role::kTool:
        out_.add_special(kUser);
        add_blocks(message.blocks);
        break;
      case Role::kLatestReminder:
        out_.add_special(kLatestReminder);
        out_.add(message.content);
        break;
      case Role::kAssistant:
        open_turn(i);
        add_answer(i);
        break;
    }
  }

  void add_tools(const Message& message) {
    if (!message.tool_schemas.empty()) {
      out_.add("\n\n");
      add_with_tokens(kToolsHead);
      out_.add(fmt::format("{}", fmt::join(message.tool_schemas, "\n")));
      out_.add(kToolsTail);
    }
    if (message.response_schema.empty()) return;
    out_.add(kResponseFormat);
    out_.add(message.response_schema);
  }

  /// A text of the format: what reads like a token in it is one.
  void add_with_tokens(std::string_view text) {
    while (!text.empty()) {
      std::size_t at = text.size();
      std::string_view first;
      for (const std::string_view name : {kDsml, kThink, kEndThink}) {
        const std::size_t found = text.find(name);
        if (found < at) std::tie(at, first) = std::pair(found, name);
      }
      out_.add(text.substr(0, at));
      if (!first.empty()) out_.add_special(first);
      text.remove_prefix(at + first.size());
    }
  }

  void add_blocks(const std::vector<Block>& blocks) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (b > 0) out_.add("\n\n");
      if (blocks[b].is_tool_result) out_.add("<tool_result>");
      out_.add(blocks[b].text);
      if (blocks[b].is_tool_result) out_.add("</tool_result>");
    }
  }

  /// What the assistant's answer at index i (or one past the end) continues.
  void open_turn(std::size_t i) {
    const std::string_view task = i == 0 ? std::string_view() : messages_[i - 1].task;
    if (task.empty() || task == kAction) {
      out_.add_special(kAssistant);
      const bool thinks = options_.thinking && (!task.empty() || shows_thinking(i));
      out_.add_special(thinks ? kThink : kEndThink);
    }
    if (!task.empty()) out_.add_special(task);
  }

  void add_answer(std::size_t i) {
    const Message& message = messages_[i];
    const bool is_open = options_.continue_final_message && i + 1 == messages_.size();
    const bool answers_task = i > 0 && !messages_[i - 1].task.empty();
    if (options_.thinking && !answers_task && shows_thinking(i)) {
      out_.add(message.reasoning);
      const bool is_still_thinking = is_open && message.content.empty() && message.calls.empty();
      if (!is_still_thinking) out_.add_special(kEndThink);
    }
    out_.add(message.content);
    if (!message.calls.empty()) add_calls(message.calls);
    if (!is_open && !message.without_eos) out_.add_special(kEos);
  }

  /// The new turn always does; a finished one only if it is the last thing in the prompt or tools are defined.
  bool shows_thinking(std::size_t i) const {
    if (!drops_thinking_ || i == messages_.size()) return true;
    const bool begins_another = options_.add_generation_prompt && !options_.continue_final_message;
    return i + 1 == messages_.size() && !begins_another;
  }

  void add_tag(std::string_view open, std::string_view rest) {
    out_.add(open);
    out_.add_special(kDsml);
    out_.add(rest);
  }

  void add_calls(const std::vector<ToolCall>& calls) {
    add_tag("\n\n<", " calls>\n");
    for (const ToolCall& call : calls) {
      add_tag("<", fmt::format(" invoke name=\"{}\">\n", call.name));
      for (std::size_t p = 0; p < call.parameters.size(); ++p) {
        const Parameter& parameter = call.parameters[p];
        add_tag(p > 0 ? "\n<" : "<", fmt::format(" parameter name=\"{}\" string=\"{}\">{}", parameter.name,
                                                 parameter.is_string, parameter.value));
        add_tag("</", " parameter>");
      }
      add_tag("\n</", " invoke>\n");
    }
    add_tag("</", " calls>");
  }

  const std::vector<Message>& messages_;
  const PromptOptions& options_;
  const bool drops_thinking_;
  PromptText out_;
};

}  // namespace

std::string_view task_token(std::string_view task) {
  const auto found = std::ranges::find(kTasks, task, [](const auto& entry) { return entry.first; });
  return found == std::end(kTasks) ? std::string_view() : found->second;
}

PromptText render_prompt(std::vector<Message> messages, const PromptOptions& options) {
  std::erase_if(messages, is_empty_system);
  messages = merge_user_turns(std::move(messages));
  sort_tool_results(messages);
  const bool drops_thinking =
      options.drop_thinking && std::ranges::all_of(messages, [](const Message& m) { return m.tool_schemas.empty(); });
  if (options.thinking && drops_thinking) drop_developers_of_earlier_turns(messages);
  return Renderer(messages, options, drops_thinking).render();
}

}  // namespace thalweg::text::deepseek_v41
