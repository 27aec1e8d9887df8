#include "text/deepseek_v41/encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <utility>

#include "text/deepseek_v41/completion.h"
#include "text/deepseek_v41/messages.h"
#include "text/deepseek_v41/prompt.h"

namespace thalweg::text::deepseek_v41 {
namespace {
namespace json = boost::json;

struct NamedEffort {
  std::string_view name;
  int effort;
};
constexpr NamedEffort kEfforts50[] = {{"low", 25}, {"high", 50}, {"xhigh", 75}, {"max", 100}};
constexpr NamedEffort kEfforts75[] = {{"low", 50},    {"high", 75},  {"max", 100},  {"minimal", 50},
                                      {"medium", 75}, {"xhigh", 75}, {"ultra", 100}};

std::unexpected<Error> refuse(std::string message, std::string param) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

Result<json::object> parse_variables(std::string_view kwargs_json) {
  if (kwargs_json.empty()) return json::object();
  json::error_code error;
  json::value value = json::parse(kwargs_json, error);
  if (error || !value.is_object()) return refuse("chat_template_kwargs is no JSON object", "chat_template_kwargs");
  return std::move(value.get_object());
}

/// False and `out` as it was when absent.
Result<bool> read_flag(const json::object& variables, std::string_view name, bool& out) {
  const json::value* value = variables.if_contains(name);
  if (value == nullptr || value->is_null()) return false;
  if (!value->is_bool()) return refuse(fmt::format("{} must be true or false", name), "chat_template_kwargs");
  out = value->get_bool();
  return true;
}

Result<EffortNames> read_effort_names(const json::object& variables, EffortNames names) {
  const json::value* value = variables.if_contains("effort_names");
  if (value == nullptr || value->is_null()) return names;
  if (value->is_string() && value->get_string() == "high=50") return EffortNames::kHigh50;
  if (value->is_string() && value->get_string() == "high=75") return EffortNames::kHigh75;
  return refuse("effort_names must be \"high=50\" or \"high=75\"", "chat_template_kwargs");
}

/// The number of `value`; 0 for "none".
Result<int> read_effort(const json::value& value, EffortNames names) {
  constexpr std::string_view kField = "reasoning_effort";
  if (value.is_int64() && value.get_int64() >= 1 && value.get_int64() <= 100) {
    return static_cast<int>(value.get_int64());
  }
  if (value.is_string()) {
    const std::string_view name(value.get_string().data(), value.get_string().size());
    if (name == "none") return 0;
    if (const std::optional<int> effort = effort_of_name(name, names)) return *effort;
  }
  return refuse(fmt::format("reasoning_effort is {}; this model takes 1 to 100, none, {}", json::serialize(value),
                            names == EffortNames::kHigh50 ? "low, high, xhigh or max"
                                                          : "minimal, low, medium, high, xhigh, max or ultra"),
                std::string(kField));
}

Result<PromptOptions> read_options(const Conversation& conversation, EffortNames names) {
  const Result<json::object> variables = parse_variables(conversation.kwargs_json);
  if (!variables) return std::unexpected(variables.error());
  const Result<EffortNames> chosen = read_effort_names(*variables, names);
  if (!chosen) return std::unexpected(chosen.error());
  PromptOptions options{.effort = *effort_of_name("high", *chosen),
                        .add_generation_prompt = conversation.add_generation_prompt,
                        .continue_final_message = conversation.continue_final_message};
  if (const json::value* effort = variables->if_contains("reasoning_effort"); effort != nullptr && !effort->is_null()) {
    const Result<int> number = read_effort(*effort, *chosen);
    if (!number) return std::unexpected(number.error());
    options.thinking = *number > 0;
    if (*number > 0) options.effort = *number;
  }
  for (const std::string_view name : {"enable_thinking", "thinking"}) {
    if (const Result<bool> read = read_flag(*variables, name, options.thinking); !read) {
      return std::unexpected(read.error());
    }
  }
  if (const Result<bool> read = read_flag(*variables, "drop_thinking", options.drop_thinking); !read) {
    return std::unexpected(read.error());
  }
  return options;
}

/// Tools of the whole conversation are told by the system.
void add_tools(std::vector<Message>& messages, std::vector<std::string> schemas) {
  if (schemas.empty()) return;
  if (messages.empty() || messages.front().role != Role::kSystem) {
    messages.insert(messages.begin(), Message{.role = Role::kSystem});
  }
  std::ranges::move(schemas, std::back_inserter(messages.front().tool_schemas));
}

class Encoding final : public ChatTemplate {
 public:
  explicit Encoding(EffortNames names) : names_(names) {}

  Result<std::string> render(const Conversation& conversation) const override {
    Result<PromptText> prompt = render_conversation(conversation, names_);
    if (!prompt) return std::unexpected(std::move(prompt.error()));
    return std::move(prompt->text);
  }

  Result<std::vector<std::int32_t>> encode(const Conversation& conversation,
                                           const Tokenizer& tokenizer) const override {
    const Result<PromptText> prompt = render_conversation(conversation, names_);
    if (!prompt) return std::unexpected(prompt.error());
    return encode_prompt(*prompt, tokenizer, {.add_special_tokens = false, .parse_added = false});
  }

  std::unique_ptr<CompletionParser> completion_parser(const Conversation& conversation) const override {
    const Result<PromptOptions> options = read_options(conversation, names_);
    CompletionStart start{.in_reasoning = options && options->thinking,
                          .parses_calls = !conversation.tools_json.empty()};
    if (conversation.continue_final_message) {
      const Result<std::vector<Message>> messages = read_messages(conversation.messages_json);
      if (messages && !messages->empty()) {
        const Message& last = messages->back();
        const bool has_content = !last.content.empty() || !last.calls.empty();
        start.is_continued = has_content || !last.reasoning.empty();
        start.in_reasoning = start.in_reasoning && !has_content;
      }
    }
    return std::make_unique<Completion>(start);
  }

  bool reads_parts() const override { return true; }

 private:
  const EffortNames names_;
};

}  // namespace

std::optional<int> effort_of_name(std::string_view name, EffortNames names) {
  const std::span<const NamedEffort> efforts =
      names == EffortNames::kHigh50 ? std::span<const NamedEffort>(kEfforts50) : kEfforts75;
  const auto found = std::ranges::find(efforts, name, &NamedEffort::name);
  return found == efforts.end() ? std::nullopt : std::optional(found->effort);
}

Result<PromptText> render_conversation(const Conversation& conversation, EffortNames names) {
  const Result<PromptOptions> options = read_options(conversation, names);
  if (!options) return std::unexpected(options.error());
  Result<std::vector<Message>> messages = read_messages(conversation.messages_json);
  if (!messages) return std::unexpected(std::move(messages.error()));
  Result<std::vector<std::string>> schemas = read_tool_schemas(conversation.tools_json);
  if (!schemas) return std::unexpected(std::move(schemas.error()));
  if (messages->empty()) return refuse("messages is empty", "messages");
  if (options->continue_final_message && messages->back().role != Role::kAssistant) {
    return refuse("continue_final_message needs an assistant's message at the end", "continue_final_message");
  }
  add_tools(*messages, std::move(*schemas));
  return render_prompt(std::move(*messages), *options);
}

std::unique_ptr<ChatTemplate> make_encoding(EffortNames names) { return std::make_unique<Encoding>(names); }

}  // namespace thalweg::text::deepseek_v41
