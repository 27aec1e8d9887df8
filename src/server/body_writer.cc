// An answer as one JSON body: the fold of the stream's parts.
#include <algorithm>
#include <map>

#include "server/answer_json.h"

namespace thalweg::server {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T> from) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
}

void fold(ChoiceDelta& into, ChoiceDelta delta) {
  into.index = delta.index;
  into.reasoning += delta.reasoning;
  into.text += delta.text;
  for (text::ToolCallDelta& call : delta.tool_calls) {
    const bool goes_on = static_cast<std::size_t>(call.index) < into.tool_calls.size();
    goes_on ? void(into.tool_calls.back().arguments += call.arguments) : into.tool_calls.push_back(std::move(call));
  }
  append(into.token_ids, std::move(delta.token_ids));
  append(into.entries, std::move(delta.entries));
  append(into.prompt_token_ids, std::move(delta.prompt_token_ids));
  append(into.prompt_entries, std::move(delta.prompt_entries));
  if (delta.finish) into.finish = std::move(delta.finish);
}

class BodyWriter final : public AnswerWriter {
 public:
  BodyWriter(AnswerHead head, const text::Tokenizer& tokenizer, std::shared_ptr<Exchange> exchange)
      : head_(std::move(head)), tokenizer_(tokenizer), exchange_(std::move(exchange)) {}

  void add(ChoiceDelta delta, const Usage& /*so_far*/) override {
    ChoiceDelta& choice = choices_[delta.index];
    fold(choice, std::move(delta));
  }

  void complete(const Usage& usage) override {
    HttpResponse response;
    JsonWriter json(response.body);
    json.raw("{").raw(head_json(head_, head_.options.is_chat ? "chat.completion" : "text_completion"));
    json.raw(R"(,"choices":[)");
    bool is_first = true;
    for (const auto& [index, choice] : choices_) {
      if (!is_first) json.raw(",");
      is_first = false;
      write_choice(json, choice);
    }
    json.raw(R"(],"usage":)");
    write_usage(json, usage);
    if (head_.options.is_chat) write_prompt(json, choices_.begin()->second);
    json.raw("}");
    exchange_->respond(std::move(response));
  }

  void fail(const ApiError& error) override { exchange_->respond(error_response(error)); }
  void flush() override {}

 private:
  void write_choice(JsonWriter& json, const ChoiceDelta& choice) const {
    json.raw(R"({"index":)").integer(choice.index);
    if (head_.options.is_chat) {
      write_message(json, choice);
    } else {
      json.raw(R"(,"text":)").string(choice.text);
    }
    json.raw(R"(,"logprobs":)");
    write_logprobs(json, head_.options, tokenizer_, choice.entries);
    json.raw(R"(,"finish_reason":)").string(choice.finish->reason).raw(R"(,"stop_reason":)");
    write_stop_reason(json, *choice.finish);
    if (head_.options.return_token_ids) {
      json.raw(R"(,"token_ids":)");
      write_ids(json, choice.token_ids);
    }
    if (!head_.options.is_chat) write_prompt(json, choice);
    json.raw("}");
  }

  void write_message(JsonWriter& json, const ChoiceDelta& choice) const {
    json.raw(R"(,"message":{"role":"assistant","content":)");
    choice.text.empty() && !choice.tool_calls.empty() ? json.raw("null") : json.string(choice.text);
    json.raw(R"(,"refusal":null)");
    if (!choice.reasoning.empty()) {
      json.raw(",");
      write_reasoning(json, choice.reasoning);
    }
    if (!choice.tool_calls.empty()) {
      json.raw(R"(,"tool_calls":)");
      write_tool_calls(json, head_, choice.index, choice.tool_calls);
    }
    json.raw("}");
  }

  /// The fields about the prompt, of the whole answer (chat) or of a choice (completions).
  void write_prompt(JsonWriter& json, const ChoiceDelta& choice) const {
    if (head_.options.prompt_logprobs) {
      json.raw(R"(,"prompt_logprobs":)");
      write_prompt_logprobs(json, tokenizer_, choice.prompt_entries);
    }
    if (head_.options.return_token_ids) {
      json.raw(R"(,"prompt_token_ids":)");
      write_ids(json, choice.prompt_token_ids);
    }
  }

  const AnswerHead head_;
  const text::Tokenizer& tokenizer_;
  const std::shared_ptr<Exchange> exchange_;
  std::map<std::int32_t, ChoiceDelta> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_body_writer(AnswerHead head, const text::Tokenizer& tokenizer,
                                               std::shared_ptr<Exchange> exchange) {
  return std::make_unique<BodyWriter>(std::move(head), tokenizer, std::move(exchange));
}

}  // namespace thalweg::server
