// An answer as server-sent events.
#include "server/answer_json.h"

namespace thalweg::server {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

class StreamWriter final : public AnswerWriter {
 public:
  StreamWriter(AnswerHead head, const text::Tokenizer& tokenizer, std::shared_ptr<Exchange> exchange)
      : head_(std::move(head)), tokenizer_(tokenizer), exchange_(std::move(exchange)) {
    chunk_head_ = "data: {" + head_json(head_, head_.options.is_chat ? "chat.completion.chunk" : "text_completion");
  }

  void add(ChoiceDelta delta, const Usage& so_far) override {
    begin();
    // Completions have no role chunk.
    if (!head_.options.is_chat && delta.is_start && delta.text.empty() && delta.prompt_token_ids.empty()) return;
    std::string chunk = chunk_head_;
    JsonWriter json(chunk);
    write_prompt_ids(json, delta);
    json.raw(R"(,"choices":[{"index":)").integer(delta.index);
    head_.options.is_chat ? write_chat_text(json, delta) : write_completion_text(json, delta);
    json.raw(R"(,"logprobs":)");
    delta.entries.empty() ? static_cast<void>(json.raw("null"))
                          : write_logprobs(json, head_.options, tokenizer_, delta.entries);
    write_finish(json, delta);
    if (!delta.token_ids.empty()) {
      json.raw(R"(,"token_ids":)");
      write_ids(json, delta.token_ids);
    }
    json.raw("}]");
    if (head_.options.continuous_usage) {
      json.raw(R"(,"usage":)");
      write_usage(json, so_far);
    } else if (head_.options.include_usage && head_.usage_null_in_chunks) {
      json.raw(R"(,"usage":null)");
    }
    json.raw("}\n\n");
    exchange_->write_stream(chunk);
  }

  void complete(const Usage& usage) override {
    begin();
    if (head_.options.include_usage) {
      std::string chunk = chunk_head_;
      JsonWriter json(chunk);
      json.raw(R"(,"choices":[],"usage":)");
      write_usage(json, usage);
      json.raw("}\n\n");
      exchange_->write_stream(chunk);
    }
    exchange_->write_stream(kDone);
    exchange_->end_stream();
  }

  void fail(const ApiError& error) override {
    if (!has_begun_) return exchange_->respond(error_response(error));
    exchange_->write_stream("data: " + error_body(error) + "\n\n");
    exchange_->write_stream(kDone);
    exchange_->end_stream();
  }

  void flush() override {
    if (has_begun_) exchange_->flush();
  }

 private:
  void begin() {
    if (has_begun_) return;
    has_begun_ = true;
    exchange_->begin_stream();
  }

  void write_prompt_ids(JsonWriter& json, const ChoiceDelta& delta) const {
    if (!head_.options.is_chat || delta.prompt_token_ids.empty() || delta.index != 0) return;
    json.raw(R"(,"prompt_token_ids":)");
    write_ids(json, delta.prompt_token_ids);
  }

  void write_chat_text(JsonWriter& json, const ChoiceDelta& delta) const {
    json.raw(R"(,"delta":{)");
    if (delta.is_start) json.raw(R"("role":"assistant",)");
    const bool has_calls = !delta.tool_calls.empty();
    const bool has_content = !delta.text.empty() || (delta.reasoning.empty() && !has_calls);
    if (!delta.reasoning.empty()) {
      write_reasoning(json, delta.reasoning);
      if (has_content || has_calls) json.raw(",");
    }
    if (!delta.finish && has_content) json.raw(R"("content":)").string(delta.text).raw(has_calls ? "," : "");
    if (has_calls) {
      json.raw(R"("tool_calls":)");
      write_tool_calls(json, head_, delta.index, delta.tool_calls);
    }
    json.raw("}");
  }

  void write_completion_text(JsonWriter& json, const ChoiceDelta& delta) const {
    json.raw(R"(,"text":)").string(delta.text);
    if (!delta.prompt_token_ids.empty()) {
      json.raw(R"(,"prompt_token_ids":)");
      write_ids(json, delta.prompt_token_ids);
    }
  }

  static void write_finish(JsonWriter& json, const ChoiceDelta& delta) {
    json.raw(R"(,"finish_reason":)");
    if (!delta.finish) {
      json.raw("null");
      return;
    }
    json.string(delta.finish->reason).raw(R"(,"stop_reason":)");
    write_stop_reason(json, *delta.finish);
  }

  const AnswerHead head_;
  const text::Tokenizer& tokenizer_;
  const std::shared_ptr<Exchange> exchange_;
  std::string chunk_head_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_stream_writer(AnswerHead head, const text::Tokenizer& tokenizer,
                                                 std::shared_ptr<Exchange> exchange) {
  return std::make_unique<StreamWriter>(std::move(head), tokenizer, std::move(exchange));
}

}  // namespace thalweg::server
