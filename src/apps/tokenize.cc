#include <fmt/format.h>

#include <boost/json.hpp>
#include <iostream>
#include <iterator>
#include <string>

#include "apps/commands.h"
#include "apps/loaded_model.h"

namespace thalweg::apps {
namespace {

Result<std::vector<std::int32_t>> ids_of(const TokenizeCommand& command, const ModelText& model,
                                         const std::string& text) {
  if (!command.chat) {
    return model.tokenizer->encode(
        text, {.add_special_tokens = !command.no_special_tokens, .parse_special = command.parse_special});
  }
  if (model.chat_template == nullptr) {
    return fail(ErrorCode::kUnimplemented, fmt::format("{} has no chat template", command.model), "chat");
  }
  text::Conversation conversation;
  conversation.messages_json =
      boost::json::serialize(boost::json::array{boost::json::object{{"role", "user"}, {"content", text}}});
  return model.chat_template->encode(conversation, *model.tokenizer);
}

Status print(const TokenizeCommand& command) {
  auto path = resolve_model(command.model);
  if (!path) return std::unexpected(path.error());
  auto checkpoint = weights::Checkpoint::open(*path);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  auto model = read_model_text(**checkpoint);
  if (!model) return std::unexpected(model.error());
  if (!command.decode_ids.empty()) {
    auto text = model->tokenizer->decode(command.decode_ids, false);
    if (!text) return std::unexpected(text.error());
    fmt::print("{}\n", *text);
    return {};
  }
  const std::string text =
      command.from_stdin ? std::string{std::istreambuf_iterator<char>(std::cin), {}} : command.text;
  auto ids = ids_of(command, *model, text);
  if (!ids) return std::unexpected(ids.error());
  fmt::print("{}\n", boost::json::serialize(boost::json::value_from(*ids)));
  return {};
}

}  // namespace

int run(const TokenizeCommand& command) {
  if (auto status = print(command); !status) return report(status.error());
  return 0;
}

}  // namespace thalweg::apps
