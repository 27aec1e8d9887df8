// The parts of an answer as they arrive, and the writers that turn them into a stream or a body.
// Both forms are made from the same parts: the body is the fold of the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/exchange.h"
#include "server/openai_request.h"
#include "text/completion_parser.h"
#include "text/tokenizer.h"
#include "thalweg/event.h"

namespace thalweg::server {

/// One token in `logprobs`.
struct TokenEntry {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
  bool has_logprob = true;       // false for the first token of a prompt
  bool is_end = false;           // ended the sequence, its text is no part of the answer
  std::int64_t text_offset = 0;  // characters before it
};

struct ChoiceFinish {
  std::string_view reason;  // "stop", "length" or "tool_calls"
  std::variant<std::monostate, std::string, std::int32_t> stop_reason;
};

/// What a choice gained. The first delta of a choice is its start, the last one carries `finish` alone.
struct ChoiceDelta {
  std::int32_t index = 0;
  bool is_start = false;
  std::string reasoning;  // before the text
  std::string text;
  std::vector<text::ToolCallDelta> tool_calls;  // behind the text
  std::vector<std::int32_t> token_ids;          // if asked for: all tokens since the last delta
  std::vector<TokenEntry> entries;              // if asked for: the tokens of the parts, marks between them included
  std::vector<std::int32_t> prompt_token_ids;   // at the start, if asked for
  std::vector<TokenEntry> prompt_entries;       // at the start, if prompt_logprobs were asked for
  std::optional<ChoiceFinish> finish;
};

struct Usage {
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_output_tokens = 0;
  std::int64_t num_reasoning_tokens = 0;  // of them
};

/// The same in all chunks of one answer.
struct AnswerHead {
  std::string id;
  std::string model;
  std::int64_t created = 0;  // seconds since 1970
  AnswerOptions options;
  bool usage_null_in_chunks = false;
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void add(ChoiceDelta delta, const Usage& so_far) = 0;
  /// All choices are finished; ends the exchange.
  virtual void complete(const Usage& usage) = 0;
  /// Ends the exchange.
  virtual void fail(const ApiError& error) = 0;
  /// After the parts of one step.
  virtual void flush() = 0;
};

/// Server-sent events. The HTTP status is decided by whichever comes first: a delta or an error.
std::unique_ptr<AnswerWriter> make_stream_writer(AnswerHead head, const text::Tokenizer& tokenizer,
                                                 std::shared_ptr<Exchange> exchange);
/// One JSON body.
std::unique_ptr<AnswerWriter> make_body_writer(AnswerHead head, const text::Tokenizer& tokenizer,
                                               std::shared_ptr<Exchange> exchange);

}  // namespace thalweg::server
