#include "text/chat_template.h"

#include <span>
#include <utility>

#include "text/prompt_text.h"
#include "text/rust_border.h"

namespace thalweg::text {
namespace {

struct RenderedPrompt {
  PromptText prompt;
  bool hidden_specials = false;  // then `prompt.specials` are the tokens, else every name in the text is one
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
    return std::move(prompt->prompt.text);
  }

  Result<std::vector<std::int32_t>> encode(const Conversation& conversation,
                                           const Tokenizer& tokenizer) const override {
    std::vector<tw_slice> names;
    for (const std::int32_t id : tokenizer.special_ids()) names.push_back(slice_of(tokenizer.token_bytes(id)));
    Result<RenderedPrompt> prompt = render_prompt(conversation, names);
    if (!prompt) return std::unexpected(std::move(prompt.error()));

    Result<std::vector<std::int32_t>> ids =
        prompt->hidden_specials
            ? encode_prompt(prompt->prompt, tokenizer, {.add_special_tokens = false})
            : tokenizer.encode(prompt->prompt.text, {.add_special_tokens = false, .parse_special = true});
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
    prompt.prompt.text = take_text(text);
    for (const tw_span& span : std::span(spans.data, spans.size))
      prompt.prompt.specials.push_back({span.begin, span.end});
    tw_spans_free(&spans);
    return prompt;
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
