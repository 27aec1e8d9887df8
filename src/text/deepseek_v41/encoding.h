// DeepSeek-V4.1's chat encoding as the model's template: the form is fixed, so no Jinja is involved.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "text/chat_template.h"
#include "text/prompt_text.h"

namespace thalweg::text::deepseek_v41 {

/// What the names of reasoning efforts stand for. The release has changed its mind; numbers always mean the same.
enum class EffortNames {
  kHigh50,  // low 25, high 50, xhigh 75, max 100
  kHigh75,  // low 50, high 75, max 100; with the aliases of DeepSeek's API: minimal, medium, xhigh, ultra
};

/// 1 to 100; nothing for an unknown name.
std::optional<int> effort_of_name(std::string_view name, EffortNames names);

/// The prompt of a conversation. Its variables (kwargs):
///   thinking, enable_thinking   booleans; on by default
///   reasoning_effort            1 to 100, a name, or "none", which is thinking off; "high" by default
///   effort_names                "high=50" or "high=75" in place of `names`
///   drop_thinking               boolean; true: reasoning of earlier turns is forgotten unless there are tools
/// Errors are kInvalidArgument with the field at fault.
Result<PromptText> render_conversation(const Conversation& conversation, EffortNames names);

std::unique_ptr<ChatTemplate> make_encoding(EffortNames names = EffortNames::kHigh50);

}  // namespace thalweg::text::deepseek_v41
