// Any bytes as a chat template, and after a line of its own as the messages.
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz_target.h"
#include "text/chat_template.h"
#include "text/small_vocabularies.h"

using namespace thalweg::text;

namespace {
constexpr std::string_view kSeparator = "\n---\n";
constexpr std::string_view kMessages =
    R"([{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"a"}]},)"
    R"({"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"x\":1}"}}]}])";
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto tokenizer = Tokenizer::from_gguf(byte_level_vocabulary()).value();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t at = input.find(kSeparator);
  const std::string messages(at == input.npos ? kMessages : input.substr(at + kSeparator.size()));
  const auto compiled = ChatTemplate::compile(input.substr(0, at), "<|start|>", "<|end|>");
  if (!compiled) {
    CHECK(!compiled.error().message.empty());
    return 0;
  }
  for (const bool continues : {false, true}) {
    const Conversation conversation{
        .messages_json = messages, .tools_json = R"([{"name":"f"}])", .continue_final_message = continues};
    const auto text = (*compiled)->render(conversation);
    const auto ids = (*compiled)->encode(conversation, *tokenizer);
    if (messages == kMessages) CHECK(text.has_value() == ids.has_value());
    // Plain messages: what the tokens say is what was rendered, unless a second has passed in between.
    if (text && messages == kMessages && input.find("strftime") == input.npos) {
      CHECK(tokenizer->decode(*ids, false).value() == *text);
    }
  }
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  return {
      "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n{{ m['content'] | trim }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
      "{%- set ns = namespace(n=0) -%}{% macro f(x) %}{{ x | tojson(indent=2) }}{% endmacro %}{% for t in tools %}"
      "{{ f(t) }}{% endfor %}{% for m in messages[::-1] %}{% generation %}{{ loop.index0 ~ m.content }}{% "
      "endgeneration %}"
      "{% if loop.last %}{% break %}{% endif %}{% endfor %}",
      "{{ messages[0].content.split(' ') | join('-') | upper }}{{ strftime_now('%d %b') }}{{ raise_exception('x') }}",
      "{% for k, v in messages[2].tool_calls[0].function.arguments | items %}{{ k }}{{ v * 3 }}{{ 'a' * 9 }}{% endfor "
      "%}" +
          std::string(kSeparator) +
          R"([{"role":"user","content":"<|end|>"},{},{"tool_calls":[{"function":{"arguments":"{}"}}]}])",
  };
}
