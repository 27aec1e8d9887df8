// The messages and tools of a chat request, checked and brought into the form that templates expect.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

#include "server/json_reader.h"
#include "text/chat_template.h"

namespace thalweg::server {

/// Fills `conversation` from the fields messages, tools, tool_choice, add_generation_prompt,
/// continue_final_message, chat_template_kwargs and their relatives. `last_assistant_text` becomes the last
/// message's content if it is the assistant's. `reads_parts`: the template's reads_parts(). Mistakes are kept in
/// `reader`.
void read_conversation(FieldReader& reader, bool reads_parts, text::Conversation& conversation,
                       std::string& last_assistant_text);

}  // namespace thalweg::server
