#include "text/chat_template.h"

#include <utility>

#include "text/rust_border.h"

namespace thalweg::text {
namespace {

struct RenderedPrompt {
  std::string text;
  bool hidden_specials = false;  // then `specials` says which places of `text` are tokens
  std::vector<tw_span> specials;
};

class JinjaTemplate final : public ChatTemplate {
 public:
  explicit JinjaTemplate(tw_template* compiled) : compiled_(compiled) {}
  ~JinjaTemplate() override { tw_template_free(compiled_); }
  JinjaTemplate(const JinjaTemplate&) = delete;
  JinjaTemplate& operator=(const JinjaTemplate&) = delete;

  Result<std::string> render(const Conversation& conversation) const override {
    Result<RenderedPrompt> prompt = render_prompt(conversation, {});
    if (!prompt) return std::unexpected(std::move(prompt.error()));
    return std::move(prompt->text);
  }

  Result<std::vector<std::int32_t>> encode(const Conversation& conversation,
                                           const Tokenizer& tokenizer) const override {
    std::vector<tw_slice> names;
    for (const std::int32_t id : tokenizer.special_ids()) names.push_back(slice_of(tokenizer.token_bytes(id)));
    Result<RenderedPrompt> prompt = render_prompt(conversation, names);
    if (!prompt) return std::unexpected(std::move(prompt.error()));

    Result<std::vector<std::int32_t>> ids =
        prompt->hidden_specials ? encode_parts(*prompt, tokenizer)
                                : tokenizer.encode(prompt->text, {.add_special_tokens = false, .parse_special = true});
    if (!ids) return ids;
    const std::optional<std::int32_t> bos = tokenizer.bos_token_id();
    if (tokenizer.adds_bos() && bos && (ids->empty() || ids->front() != *bos)) ids->insert(ids->begin(), *bos);
    return ids;
  }

 private:
  Result<RenderedPrompt> render_prompt(const Conversation& conversation, const std::vector<tw_slice>& specials) const {
    const tw_conversation input{
        .messages = slice_of(conversation.messages_json),
        .tools = slice_of(conversation.tools_json),
        .kwargs = slice_of(conversation.kwargs_json),
        .add_generation_prompt = conversation.add_generation_prompt && !conversation.continue_final_message,
        .continue_final_message = conversation.continue_final_message,
        .specials = specials.data(),
        .num_specials = specials.size(),
    };
    tw_buffer text{};
    tw_spans spans{};
    tw_buffer error{};
    RenderedPrompt prompt;
    if (!tw_template_render(compiled_, &input, &text, &prompt.hidden_specials, &spans, &error)) {
      return fail(ErrorCode::kInvalidArgument, take_text(error), "messages");
    }
    prompt.text = take_text(text);
    prompt.specials.assign(spans.data, spans.data + spans.size);
    tw_spans_free(&spans);
    return prompt;
  }

  // Each stretch between special tokens is encoded for itself, as plain text.
  static Result<std::vector<std::int32_t>> encode_parts(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
    const std::string_view text = prompt.text;
    std::vector<std::int32_t> ids;
    std::size_t done = 0;
    const auto add_plain = [&](std::size_t end) -> Status {
      if (end == done) return {};
      Result<std::vector<std::int32_t>> part =
          tokenizer.encode(text.substr(done, end - done), {.add_special_tokens = false});
      if (!part) return std::unexpected(std::move(part.error()));
      ids.insert(ids.end(), part->begin(), part->end());
      return {};
    };
    for (const tw_span& special : prompt.specials) {
      if (Status added = add_plain(special.begin); !added) return std::unexpected(std::move(added.error()));
      const std::string_view name = text.substr(special.begin, special.end - special.begin);
      const std::optional<std::int32_t> id = tokenizer.token_id(name);
      if (!id) return fail(ErrorCode::kInternal, "special token \"" + std::string(name) + "\" has no id");
      ids.push_back(*id);
      done = special.end;
    }
    if (Status added = add_plain(text.size()); !added) return std::unexpected(std::move(added.error()));
    return ids;
  }

  tw_template* const compiled_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string_view source, std::string_view bos_token,
                                                            std::string_view eos_token) {
  tw_buffer error{};
  tw_template* compiled = tw_template_compile(slice_of(source), slice_of(bos_token), slice_of(eos_token), &error);
  if (compiled == nullptr) return fail(ErrorCode::kInvalidArgument, take_text(error));
  return std::make_unique<JinjaTemplate>(compiled);
}

}  // namespace thalweg::text
