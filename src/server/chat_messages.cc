#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <string_view>

namespace thalweg::server {
namespace {
namespace json = boost::json;

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
constexpr std::string_view kReminder = "latest_reminder";  // DeepSeek's

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

/// Text of a content field: a string, or text parts joined by line ends. Templates that read parts check them.
void read_content(FieldReader& message, bool reads_parts, json::object& out) {
  const json::value* content = message.find("content");
  if (content == nullptr) {
    out["content"] = "";
    return;
  }
  if (content->is_string() || (reads_parts && content->is_array())) {
    out["content"] = *content;
    return;
  }
  if (!content->is_array()) {
    message.refuse("content", fmt::format("is {}, must be a string or an array of parts", describe_value(*content)));
    return;
  }
  std::string text;
  for (const json::value& part : content->get_array()) {
    const json::object* fields = part.if_object();
    const json::value* type = fields == nullptr ? nullptr : fields->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      message.refuse("content", "has a part that is no object with a type");
      return;
    }
    const std::string_view kind = view(type->get_string());
    if (kind != "text" && kind != "refusal") {
      message.refuse("content", fmt::format("has a part of type \"{}\"; this model reads text only", kind));
      return;
    }
    const json::value* value = fields->if_contains(kind);
    if (value == nullptr || !value->is_string()) {
      message.refuse("content", fmt::format("has a {} part without the string \"{}\"", kind, kind));
      return;
    }
    if (!text.empty()) text.push_back('\n');
    text.append(view(value->get_string()));
  }
  out["content"] = text;
}

/// OpenAI sends the arguments of a call as a JSON string; templates iterate over them, so a string that
/// holds an object becomes that object. Anything else stays as it is and the template decides.
void read_tool_calls(FieldReader& message, json::object& out) {
  const json::array* calls = message.array("tool_calls");
  if (calls == nullptr || calls->empty()) return;
  json::array written;
  for (const json::value& call : *calls) {
    const json::object* fields = call.if_object();
    const json::value* function = fields == nullptr ? nullptr : fields->if_contains("function");
    if (function == nullptr || !function->is_object() || !function->get_object().contains("name")) {
      message.refuse("tool_calls", "has an entry that is no object with a function and its name");
      return;
    }
    json::object copy = *fields;
    json::object& target = copy["function"].get_object();
    if (const json::value* arguments = target.if_contains("arguments");
        arguments != nullptr && arguments->is_string()) {
      json::error_code error;
      json::value parsed = json::parse(view(arguments->get_string()), error);
      if (!error && parsed.is_object()) target["arguments"] = std::move(parsed);
    }
    written.push_back(std::move(copy));
  }
  out["tool_calls"] = std::move(written);
}

json::object read_message(FieldReader& message, bool reads_parts) {
  json::object out;
  std::string role;
  if (!message.string("role", role) && !message.failed()) message.refuse("role", "is missing");
  const bool is_known = std::ranges::find(kRoles, role) != std::end(kRoles) || (reads_parts && role == kReminder);
  if (!message.failed() && !is_known) {
    message.refuse("role", fmt::format("is \"{}\", must be system, developer, user, assistant or tool", role));
  }
  // Templates know the older word.
  out["role"] = role == "developer" ? "system" : role;
  read_content(message, reads_parts, out);
  read_tool_calls(message, out);
  for (const std::string_view name : {"name", "tool_call_id", "task"}) {
    std::string value;
    if (message.string(name, value)) out[name] = value;
  }
  std::string reasoning;
  if (message.string("reasoning_content", reasoning) || message.string("reasoning", reasoning)) {
    out["reasoning_content"] = reasoning;
    out["reasoning"] = reasoning;
  }
  return out;
}

void read_messages(FieldReader& reader, bool reads_parts, text::Conversation& conversation,
                   std::string& last_assistant_text) {
  const json::array* messages = reader.array("messages");
  if (messages == nullptr) {
    if (!reader.failed()) reader.refuse("messages", "is missing");
    return;
  }
  if (messages->empty()) return reader.refuse("messages", "is empty, at least one message is needed");
  json::array written;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const json::object* fields = (*messages)[i].if_object();
    if (fields == nullptr) {
      return reader.refuse(fmt::format("messages[{}]", i),
                           fmt::format("is {}, must be an object", describe_value((*messages)[i])));
    }
    FieldReader message(*fields, fmt::format("messages[{}].", i));
    written.push_back(read_message(message, reads_parts));
    if (message.failed()) return reader.fail(*message.error());
  }
  const json::object& last = written.back().get_object();
  if (last.at("role") == "assistant" && last.at("content").is_string()) {
    last_assistant_text = view(last.at("content").get_string());
  }
  conversation.messages_json = json::serialize(written);
}

void read_tools(FieldReader& reader, text::Conversation& conversation) {
  const json::array* tools = reader.array("tools");
  bool has_tools = false;
  if (tools != nullptr) {
    if (tools->empty()) return reader.refuse("tools", "is empty; leave it out instead");
    for (const json::value& tool : *tools) {
      const json::object* fields = tool.if_object();
      const json::value* function = fields == nullptr ? nullptr : fields->if_contains("function");
      const json::value* name =
          function == nullptr || !function->is_object() ? nullptr : function->get_object().if_contains("name");
      if (name == nullptr || !name->is_string()) {
        return reader.refuse("tools", "has an entry that is no object with a function and its name");
      }
      const json::value* parameters = function->get_object().if_contains("parameters");
      if (parameters != nullptr && !parameters->is_object() && !parameters->is_null()) {
        return reader.refuse("tools", fmt::format("has the function \"{}\" whose parameters are {}, must be an object",
                                                  view(name->get_string()), describe_value(*parameters)));
      }
    }
    has_tools = true;
  }
  bool tools_are_shown = has_tools;
  if (const json::value* choice = reader.find("tool_choice")) {
    const std::string_view word = choice->is_string() ? view(choice->get_string()) : std::string_view();
    if (word == "none") {
      tools_are_shown = false;
    } else if (word == "auto") {
      if (!has_tools) return reader.refuse("tool_choice", "needs tools");
    } else if (word == "required" || choice->is_object()) {
      return reader.refuse("tool_choice", "can be \"auto\" or \"none\"; forced calls are not supported by this build");
    } else {
      return reader.refuse("tool_choice", fmt::format("is {}, must be \"auto\" or \"none\"", describe_value(*choice)));
    }
  }
  bool parallel = true;
  reader.boolean("parallel_tool_calls", parallel);
  if (tools_are_shown) conversation.tools_json = json::serialize(*tools);
}

/// A name or a number; which ones there are, the template knows.
void read_effort(FieldReader& reader, json::object& variables) {
  const json::value* effort = reader.find("reasoning_effort");
  if (effort == nullptr) return;
  if (!effort->is_string() && !effort->is_int64()) {
    return reader.refuse("reasoning_effort", fmt::format("is {}, must be a name or a number", describe_value(*effort)));
  }
  variables["reasoning_effort"] = *effort;
}

/// DeepSeek's switch, {"type": "enabled"} or {"type": "disabled"}; templates know it as a boolean.
void read_thinking(FieldReader& reader, json::object& variables) {
  const json::value* thinking = reader.find("thinking");
  if (thinking == nullptr) return;
  const json::value* type = thinking->is_object() ? thinking->get_object().if_contains("type") : nullptr;
  if (thinking->is_bool()) {
    variables["thinking"] = *thinking;
  } else if (type != nullptr && (*type == "enabled" || *type == "disabled")) {
    variables["thinking"] = *type == "enabled";
  } else {
    reader.refuse("thinking", "must be an object whose type is \"enabled\" or \"disabled\"");
  }
}

void read_template_variables(FieldReader& reader, text::Conversation& conversation) {
  json::object variables;
  if (const json::object* given = reader.object("chat_template_kwargs")) variables = *given;
  if (const json::array* documents = reader.array("documents")) variables["documents"] = *documents;
  read_effort(reader, variables);
  read_thinking(reader, variables);
  // These names are the conversation itself.
  for (const std::string_view name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (variables.contains(name)) return reader.refuse("chat_template_kwargs", fmt::format("must not set {}", name));
  }
  if (!variables.empty()) conversation.kwargs_json = json::serialize(variables);
}

}  // namespace

void read_conversation(FieldReader& reader, bool reads_parts, text::Conversation& conversation,
                       std::string& last_assistant_text) {
  if (reader.find("chat_template") != nullptr) {
    reader.refuse("chat_template", "cannot be set by a request; the model's own template is used");
  }
  read_messages(reader, reads_parts, conversation, last_assistant_text);
  read_tools(reader, conversation);
  read_template_variables(reader, conversation);
  bool adds_generation_prompt = true;
  const bool adds_is_given = reader.boolean("add_generation_prompt", adds_generation_prompt);
  reader.boolean("continue_final_message", conversation.continue_final_message);
  if (conversation.continue_final_message) {
    if (adds_is_given && adds_generation_prompt) {
      reader.refuse("continue_final_message", "and add_generation_prompt exclude each other");
    }
    adds_generation_prompt = false;
  }
  conversation.add_generation_prompt = adds_generation_prompt;
}

}  // namespace thalweg::server
