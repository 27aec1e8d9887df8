#include "scheduler/admission.h"

#include <fmt/core.h>

#include <string>

namespace thalweg::scheduler {
namespace {

Status too_long(std::int64_t num_prompt_tokens, std::int64_t max_tokens, std::int64_t limit, std::string_view what,
                std::string_view remedy) {
  const bool prompt_alone = num_prompt_tokens + (max_tokens > 0 ? 1 : 0) > limit;
  std::string message =
      prompt_alone
          ? fmt::format("the prompt has {} tokens, but {} {} tokens of prompt and output together; {}",
                        num_prompt_tokens, what, limit, remedy)
          : fmt::format(
                "{} prompt tokens and max_tokens {} make {} tokens, but {} {} tokens of prompt and output "
                "together; ask for at most {}",
                num_prompt_tokens, max_tokens, num_prompt_tokens + max_tokens, what, limit, limit - num_prompt_tokens);
  return fail(ErrorCode::kInvalidArgument, std::move(message), prompt_alone ? "prompt" : "max_tokens");
}

}  // namespace

Status AdmissionGate::check_length(const GenerateRequest& request) const {
  const auto num_prompt_tokens = static_cast<std::int64_t>(request.prompt_ids.size());
  const std::int64_t num_tokens = num_prompt_tokens + request.max_tokens;
  if (num_tokens > limits_.max_model_len) {
    return too_long(num_prompt_tokens, request.max_tokens, limits_.max_model_len, "the model takes at most",
                    "shorten it");
  }
  if (num_tokens > limits_.max_cached_tokens) {
    return too_long(num_prompt_tokens, request.max_tokens, limits_.max_cached_tokens, "the KV cache holds",
                    "shorten it or start with more KV cache memory");
  }
  return {};
}

Status AdmissionGate::check(const GenerateRequest& request) const {
  // Lengths first: ids of a prompt that is too long need no look.
  if (!request.prompt_ids.empty() && request.max_tokens >= 0) {
    if (Status status = check_length(request); !status) return status;
  }
  return validate_request(request, limits_.vocab_size);
}

Result<QueuePlace> AdmissionGate::enter() {
  if (const char* reason = closed_reason_.load(std::memory_order_acquire); reason != nullptr) {
    return fail(ErrorCode::kUnavailable, fmt::format("the engine {}", reason));
  }
  if (num_queued_.fetch_add(1, std::memory_order_relaxed) >= limits_.max_queued_requests) {
    num_queued_.fetch_sub(1, std::memory_order_relaxed);
    return fail(ErrorCode::kResourceExhausted, fmt::format("{} requests are waiting, at most {} may; try again later",
                                                           limits_.max_queued_requests, limits_.max_queued_requests));
  }
  return QueuePlace(&num_queued_);
}

}  // namespace thalweg::scheduler
