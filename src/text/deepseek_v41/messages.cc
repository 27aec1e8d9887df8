#include "text/deepseek_v41/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "text/python_json.h"

namespace thalweg::text::deepseek_v41 {
namespace {
namespace json = boost::json;

constexpr std::size_t kMaxDepth = 128;

constexpr std::pair<std::string_view, Role> kRoles[] = {
    {"system", Role::kSystem},       {"developer", Role::kDeveloper}, {"user", Role::kUser},
    {"assistant", Role::kAssistant}, {"tool", Role::kTool},           {"latest_reminder", Role::kLatestReminder}};

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

std::optional<json::value> parse(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code error;
  json::value value = json::parse(text, error, {}, options);
  return error ? std::nullopt : std::optional(std::move(value));
}

std::string python_json(const json::value& value) {
  std::string text;
  append_python_json(value, text);
  return text;
}

/// Null when absent or JSON's null.
const json::value* find(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* value = find(object, name);
  return value == nullptr || !value->is_string() ? std::string_view() : view(value->get_string());
}

/// Reads one message; the first mistake is kept.
class MessageReader {
 public:
  MessageReader(const json::object& fields, std::size_t index) : fields_(fields), index_(index) {}

  Result<Message> read() {
    const std::string_view role = text_of(fields_, "role");
    const auto found = std::ranges::find(kRoles, role, [](const auto& entry) { return entry.first; });
    if (found == std::end(kRoles)) {
      refuse(
          fmt::format("role is \"{}\"; this model knows system, developer, user, assistant, tool and "
                      "latest_reminder",
                      role));
      return std::unexpected(*error_);
    }
    message_.role = found->second;
    read_content();
    message_.reasoning = text_of(fields_, "reasoning_content");
    read_calls();
    read_task();
    if (message_.role == Role::kSystem || message_.role == Role::kDeveloper) read_definitions();
    const json::value* without_eos = find(fields_, "wo_eos");
    message_.without_eos = without_eos != nullptr && without_eos->is_bool() && without_eos->get_bool();
    if (error_) return std::unexpected(*error_);
    return std::move(message_);
  }

 private:
  void refuse(std::string what) {
    if (!error_) error_ = Error{ErrorCode::kInvalidArgument, fmt::format("messages[{}]: {}", index_, what), "messages"};
  }

  bool has_blocks() const { return message_.role == Role::kUser || message_.role == Role::kTool; }

  void read_content() {
    const json::value* content = find(fields_, "content");
    if (message_.role == Role::kTool) {
      message_.blocks.push_back(tool_result(content, text_of(fields_, "tool_call_id")));
    } else if (content == nullptr) {
      if (has_blocks()) message_.blocks.emplace_back();
    } else if (content->is_string()) {
      add_text(view(content->get_string()));
    } else if (content->is_array()) {
      for (const json::value& part : content->get_array()) read_part(part);
      if (!has_blocks()) message_.content = fmt::format("{}", fmt::join(parts_, "\n\n"));
    } else {
      refuse("content is neither text nor a list of parts");
    }
    if (message_.role == Role::kDeveloper && message_.content.empty()) refuse("a developer's content is empty");
  }

  void add_text(std::string_view text) {
    if (has_blocks()) {
      message_.blocks.push_back({.text = std::string(text)});
    } else {
      message_.content = text;
    }
  }

  void read_part(const json::value& part) {
    const json::object* fields = part.if_object();
    const std::string_view type = fields == nullptr ? std::string_view() : text_of(*fields, "type");
    if (type == "text" || type == "refusal") {
      const json::value* text = find(*fields, type);
      if (text == nullptr || !text->is_string()) return refuse(fmt::format("a {0} part has no string \"{0}\"", type));
      if (has_blocks()) return add_text(view(text->get_string()));
      parts_.push_back(view(text->get_string()));
    } else if (type == "tool_result" && message_.role == Role::kUser) {
      message_.blocks.push_back(tool_result(find(*fields, "content"), text_of(*fields, "tool_use_id")));
    } else if (!refuses_picture(type)) {
      refuse(fmt::format("content has a part of type \"{}\"; this model reads text", type));
    }
  }

  bool refuses_picture(std::string_view type) {
    const bool is_picture = type == "image" || type == "image_url";
    if (is_picture) refuse("content has an image; this build has no vision, only text is read");
    return is_picture;
  }

  Block tool_result(const json::value* content, std::string_view call_id) {
    Block block{.text = {}, .is_tool_result = true, .call_id = std::string(call_id)};
    if (content == nullptr) return block;
    if (content->is_string()) {
      block.text = view(content->get_string());
    } else if (content->is_array()) {
      std::vector<std::string> texts;
      for (const json::value& part : content->get_array()) {
        const json::object* fields = part.if_object();
        const std::string_view type = fields == nullptr ? std::string_view() : text_of(*fields, "type");
        if (refuses_picture(type)) continue;
        texts.push_back(type == "text" ? std::string(text_of(*fields, "text")) : fmt::format("[Unsupported {}]", type));
      }
      block.text = fmt::format("{}", fmt::join(texts, "\n\n"));
    } else {
      refuse("content of a tool's result is neither text nor a list of parts");
    }
    return block;
  }

  void read_calls() {
    const json::value* calls = find(fields_, "tool_calls");
    if (calls == nullptr || message_.role != Role::kAssistant) return;
    if (!calls->is_array()) return refuse("tool_calls is not a list");
    for (const json::value& call : calls->get_array()) {
      const json::object* object = call.if_object();
      const json::value* function = object == nullptr ? nullptr : find(*object, "function");
      if (function == nullptr || !function->is_object() || text_of(function->get_object(), "name").empty()) {
        return refuse("tool_calls has an entry that is no object with a function and its name");
      }
      message_.calls.push_back({.id = std::string(text_of(*object, "id")),
                                .name = std::string(text_of(function->get_object(), "name")),
                                .parameters = parameters_of(find(function->get_object(), "arguments"))});
    }
  }

  /// Arguments that are no object, written so or in a string, are shown as one parameter of that name.
  static std::vector<Parameter> parameters_of(const json::value* arguments) {
    if (arguments == nullptr) return {};
    std::optional<json::value> parsed;
    if (arguments->is_string()) parsed = parse(view(arguments->get_string()));
    const json::value& value = parsed && parsed->is_object() ? *parsed : *arguments;
    std::vector<Parameter> parameters;
    if (value.is_object()) {
      for (const auto& [key, each] : value.get_object())
        parameters.push_back(parameter({key.data(), key.size()}, each));
    } else {
      parameters.push_back(parameter("arguments", value));
    }
    return parameters;
  }

  static Parameter parameter(std::string_view name, const json::value& value) {
    const bool is_string = value.is_string();
    return {.name = std::string(name),
            .value = is_string ? std::string(view(value.get_string())) : python_json(value),
            .is_string = is_string};
  }

  void read_task() {
    const std::string_view task = text_of(fields_, "task");
    if (task.empty()) return;
    message_.task = task_token(task);
    if (message_.task.empty()) refuse(fmt::format("task \"{}\" is not known", task));
  }

  void read_definitions() {
    if (const json::value* tools = find(fields_, "tools")) {
      auto schemas = read_tool_schemas(json::serialize(*tools));
      if (!schemas) return refuse(schemas.error().message);
      message_.tool_schemas = std::move(*schemas);
    }
    if (const json::value* format = find(fields_, "response_format")) message_.response_schema = python_json(*format);
  }

  const json::object& fields_;
  const std::size_t index_;
  Message message_;
  std::vector<std::string_view> parts_;  // of a content that is one text
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<Message>> read_messages(std::string_view messages_json) {
  const std::optional<json::value> list = parse(messages_json);
  if (!list || !list->is_array()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("messages is no JSON array, or nests deeper than {} levels", kMaxDepth), "messages");
  }
  std::vector<Message> messages;
  for (const json::value& entry : list->get_array()) {
    if (!entry.is_object()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("messages[{}] is no object", messages.size()), "messages");
    }
    Result<Message> message = MessageReader(entry.get_object(), messages.size()).read();
    if (!message) return std::unexpected(std::move(message.error()));
    messages.push_back(std::move(*message));
  }
  return messages;
}

Result<std::vector<std::string>> read_tool_schemas(std::string_view tools_json) {
  std::vector<std::string> schemas;
  if (tools_json.empty()) return schemas;
  const std::optional<json::value> list = parse(tools_json);
  if (!list || !list->is_array()) return fail(ErrorCode::kInvalidArgument, "tools is no JSON array", "tools");
  for (const json::value& tool : list->get_array()) {
    const json::value* function = tool.is_object() ? find(tool.get_object(), "function") : nullptr;
    if (function == nullptr || !function->is_object()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("tools[{}] is no object with a function", schemas.size()),
                  "tools");
    }
    schemas.push_back(python_json(*function));
  }
  return schemas;
}

}  // namespace thalweg::text::deepseek_v41
