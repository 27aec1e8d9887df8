// Messages and tools in OpenAI's JSON form, read into the values that prompts are made of.
#pragma once

#include <string_view>
#include <vector>

#include "text/deepseek_v41/prompt.h"
#include "thalweg/error.h"

namespace thalweg::text::deepseek_v41 {

/// An array of messages. Beyond OpenAI's fields it knows the role latest_reminder and the fields reasoning_content,
/// task, wo_eos, and, for system and developer messages, tools and response_format (a JSON schema). Content is text or
/// a list of parts; pictures are refused. Errors are kInvalidArgument and name the message.
Result<std::vector<Message>> read_messages(std::string_view messages_json);

/// The functions of an array of tools, one line of JSON each; `tools_json` may be empty.
Result<std::vector<std::string>> read_tool_schemas(std::string_view tools_json);

}  // namespace thalweg::text::deepseek_v41
