// One choice of an answer: token events in, deltas out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "server/answer.h"
#include "server/openai_request.h"
#include "text/completion_parser.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "thalweg/event.h"

namespace thalweg::server {

/// What the choices of one prompt have in common; shared by them.
struct PromptPart {
  std::vector<std::int32_t> ids;
  std::string echo;                                    // text that the answer begins with
  std::optional<std::vector<TokenLogprobs>> logprobs;  // of ids[1..], once they are known
};

/// How sequences of one request end by a token; shared by its choices.
struct EndRule {
  std::vector<std::int32_t> token_ids;  // the model's own and the request's
  std::int32_t min_tokens = 0;          // before that many, an end token is ordinary
};

/// States: waiting for start(), open, finished. Owned by the thread that serves the request.
class ChoiceStream {
 public:
  ChoiceStream(std::int32_t index, const text::Tokenizer& tokenizer, const AnswerOptions& options,
               const EndRule& end_rule, std::unique_ptr<text::CompletionParser> parser = nullptr);

  void start(const PromptPart& prompt, std::vector<ChoiceDelta>& out);

  /// A stop string may finish the choice here; then the engine is still generating.
  void push(TokenEvent event, std::vector<ChoiceDelta>& out);

  void finish(const FinishEvent& event, std::vector<ChoiceDelta>& out);

  bool started() const { return started_; }
  bool finished() const { return finished_; }
  /// Sampled tokens up to the end, those of a stop string and an end token included.
  std::int32_t num_tokens() const { return num_tokens_; }
  /// Of them, those that were sampled before the answer's content began.
  std::int32_t num_reasoning_tokens() const { return num_reasoning_tokens_; }

 private:
  void take(std::int32_t id, std::optional<TokenLogprobs> logprobs);
  void release(text::DecodedPiece piece);
  void collect(const text::CompletionDelta& delta);
  void drop_stopped_entries();
  void add_entry(TokenLogprobs logprobs, bool is_end);
  void emit(std::vector<ChoiceDelta>& out);
  void emit_finish(ChoiceFinish finish, std::vector<ChoiceDelta>& out);
  bool ends_sequence(std::int32_t id) const;
  bool leaves_text(std::int32_t id) const;
  std::vector<TokenEntry> prompt_entries(const PromptPart& prompt) const;

  const std::int32_t index_;
  const text::Tokenizer& tokenizer_;
  const AnswerOptions& options_;
  const EndRule& end_rule_;
  text::StreamDecoder decoder_;
  std::unique_ptr<text::CompletionParser> parser_;  // null: text is content

  std::deque<TokenLogprobs> unreleased_;  // of tokens whose text is held back
  std::optional<TokenLogprobs> end_token_;
  std::optional<std::string> stop_;  // the stop string that matched
  ChoiceDelta next_;                 // collected, not yet emitted
  std::int32_t num_tokens_ = 0;
  std::int32_t num_emitted_tokens_ = 0;
  std::int32_t num_reasoning_tokens_ = 0;
  std::int64_t text_offset_ = 0;
  std::size_t num_text_bytes_ = 0;   // released
  std::size_t num_entry_bytes_ = 0;  // of the tokens in entries
  bool has_emitted_ = false;
  bool started_ = false;
  bool finished_ = false;
};

}  // namespace thalweg::server
