// What an engine answers. Events of one sequence arrive in order; every sequence ends with exactly
// one FinishEvent.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "thalweg/error.h"
#include "thalweg/request.h"

namespace thalweg {

struct TokenLogprob {
  std::int32_t token_id = 0;
  float logprob = 0.0F;   // natural log of the softmax of the raw logits; never NaN, at least -9999
  std::int32_t rank = 0;  // 1 is the most likely
};

/// `chosen` is the token itself; `top` the most likely ones, best first.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

/// The sequence has been scheduled and its prompt is computed. Sent once, before its first token.
struct StartEvent {
  RequestId request_id{};
  std::int32_t sequence_index = 0;
  std::int32_t num_cached_tokens = 0;          // prompt tokens from the prefix cache, equal for all of a request
  std::vector<TokenLogprobs> prompt_logprobs;  // [num_prompt_tokens - 1], if asked for (sequence 0)
};

struct TokenEvent {
  RequestId request_id{};
  std::int32_t sequence_index = 0;
  std::vector<std::int32_t> token_ids;  // one, or several under speculation
  std::vector<TokenLogprobs> logprobs;  // one per token, if asked for
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

/// Seconds, measured on the engine's clock.
struct RequestTimings {
  double queue_s = 0.0;
  double prefill_s = 0.0;
  double decode_s = 0.0;
};

struct FinishEvent {
  RequestId request_id{};
  std::int32_t sequence_index = 0;
  FinishReason reason = FinishReason::kStop;
  std::optional<std::int32_t> stop_token_id;  // the token of `stop_token_ids` that ended it
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_cached_tokens = 0;
  std::int32_t num_output_tokens = 0;
  std::int32_t num_preemptions = 0;
  std::int32_t num_draft_tokens = 0;
  std::int32_t num_accepted_tokens = 0;
  RequestTimings timings;
  std::optional<Error> error;  // set when reason is kError
};

using Event = std::variant<StartEvent, TokenEvent, FinishEvent>;

/// Receives events on the engine thread, all events of one step for this sink in one call.
/// `deliver` must not block and must not call the engine; it hands the events to its own thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void deliver(std::vector<Event> events) = 0;
};

}  // namespace thalweg
