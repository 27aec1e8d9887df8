// The one table of what a request's fields may hold. NaN fails every range check.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "thalweg/request.h"

namespace thalweg {
namespace {

struct FloatRule {
  std::string_view name;
  float SamplingParams::*field;
  float min;
  float max;
  bool min_allowed;  // false: greater than min
};

constexpr FloatRule kFloatRules[] = {
    {"temperature", &SamplingParams::temperature, 0.0F, 2.0F, true},
    {"top_p", &SamplingParams::top_p, 0.0F, 1.0F, false},
    {"min_p", &SamplingParams::min_p, 0.0F, 1.0F, true},
    {"repetition_penalty", &SamplingParams::repetition_penalty, 0.0F, 10.0F, false},
    {"presence_penalty", &SamplingParams::presence_penalty, -2.0F, 2.0F, true},
    {"frequency_penalty", &SamplingParams::frequency_penalty, -2.0F, 2.0F, true},
};

struct IntRule {
  std::string_view name;
  std::int32_t SamplingParams::*field;
  std::int32_t min;
  std::int32_t max;
};

constexpr std::int32_t kNoMaximum = std::numeric_limits<std::int32_t>::max();
constexpr float kMaxLogitBias = 100.0F;

constexpr IntRule kIntRules[] = {
    {"top_k", &SamplingParams::top_k, 0, kNoMaximum},
    {"num_logprobs", &SamplingParams::num_logprobs, -1, kMaxLogprobs},
    {"min_tokens", &SamplingParams::min_tokens, 0, kNoMaximum},
};

Status invalid(std::string message, std::string_view param) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::string(param));
}

Status check_float(const FloatRule& rule, float value) {
  const bool above_min = rule.min_allowed ? value >= rule.min : value > rule.min;
  if (above_min && value <= rule.max) return {};
  return invalid(fmt::format("{} is {}, must be {}{}, {}]", rule.name, value, rule.min_allowed ? "in [" : "in (",
                             rule.min, rule.max),
                 rule.name);
}

Status check_int(std::string_view name, std::int32_t value, std::int32_t min, std::int32_t max) {
  if (value >= min && value <= max) return {};
  if (max == kNoMaximum) return invalid(fmt::format("{} is {}, must be at least {}", name, value, min), name);
  return invalid(fmt::format("{} is {}, must be in [{}, {}]", name, value, min, max), name);
}

Status check_count(std::string_view name, std::size_t count, std::size_t max) {
  if (count <= max) return {};
  return invalid(fmt::format("{} has {} entries, at most {} are allowed", name, count, max), name);
}

Status check_ids(std::string_view name, std::span<const std::int32_t> ids, std::int32_t vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return invalid(fmt::format("{}: token id {} at index {} is outside the vocabulary, valid ids are 0 to {}", name,
                                 ids[i], i, vocab_size - 1),
                     name);
    }
  }
  return {};
}

Status check_logit_bias(const std::vector<LogitBias>& biases, std::int32_t vocab_size) {
  constexpr std::string_view kName = "logit_bias";
  if (Status status = check_count(kName, biases.size(), kMaxLogitBiases); !status) return status;
  for (const LogitBias& entry : biases) {
    if (Status status = check_ids(kName, std::span(&entry.token_id, 1), vocab_size); !status) return status;
    if (!(std::abs(entry.bias) <= kMaxLogitBias)) {
      return invalid(fmt::format("logit_bias of token {} is {}, must be in [{}, {}]", entry.token_id, entry.bias,
                                 -kMaxLogitBias, kMaxLogitBias),
                     kName);
    }
  }
  return {};
}

Status check_bad_words(const std::vector<std::vector<std::int32_t>>& words, std::int32_t vocab_size) {
  constexpr std::string_view kName = "bad_words";
  if (Status status = check_count(kName, words.size(), kMaxBadWords); !status) return status;
  for (const std::vector<std::int32_t>& word : words) {
    if (word.empty() || word.size() > kMaxBadWordTokens) {
      return invalid(fmt::format("a bad word has {} tokens, must have 1 to {}", word.size(), kMaxBadWordTokens), kName);
    }
    if (Status status = check_ids(kName, word, vocab_size); !status) return status;
  }
  return {};
}

/// Single-token bad words are masked at every step: an allow list of nothing else leaves nothing to draw.
Status check_something_is_left(const SamplingParams& sampling) {
  const std::vector<std::int32_t>& allowed = sampling.allowed_token_ids;
  const auto is_always_masked = [&](std::int32_t id) {
    return std::ranges::any_of(sampling.bad_words,
                               [id](const auto& word) { return word.size() == 1 && word[0] == id; }) ||
           (sampling.min_tokens > 0 && std::ranges::find(sampling.stop_token_ids, id) != sampling.stop_token_ids.end());
  };
  if (allowed.empty() || !std::ranges::all_of(allowed, is_always_masked)) return {};
  return invalid(
      "allowed_token_ids: bad_words, or min_tokens with stop_token_ids, mask all of its ids; allow at least one other",
      "allowed_token_ids");
}

}  // namespace

Status validate_sampling(const SamplingParams& sampling, std::int32_t vocab_size) {
  for (const FloatRule& rule : kFloatRules) {
    if (Status status = check_float(rule, sampling.*rule.field); !status) return status;
  }
  for (const IntRule& rule : kIntRules) {
    if (Status status = check_int(rule.name, sampling.*rule.field, rule.min, rule.max); !status) return status;
  }
  if (Status status = check_logit_bias(sampling.logit_bias, vocab_size); !status) return status;
  if (Status status = check_bad_words(sampling.bad_words, vocab_size); !status) return status;

  const auto max_allowed = static_cast<std::size_t>(vocab_size);
  if (Status status = check_count("allowed_token_ids", sampling.allowed_token_ids.size(), max_allowed); !status) {
    return status;
  }
  if (Status status = check_ids("allowed_token_ids", sampling.allowed_token_ids, vocab_size); !status) return status;
  if (Status status = check_count("stop_token_ids", sampling.stop_token_ids.size(), kMaxStopTokenIds); !status) {
    return status;
  }
  if (Status status = check_ids("stop_token_ids", sampling.stop_token_ids, vocab_size); !status) return status;
  return check_something_is_left(sampling);
}

Status validate_request(const GenerateRequest& request, std::int32_t vocab_size) {
  if (request.prompt_ids.empty()) return invalid("prompt has 0 tokens, must have at least 1", "prompt");
  if (Status status = check_int("max_tokens", request.max_tokens, 0, kNoMaximum); !status) return status;
  if (Status status = check_int("n", request.num_sequences, 1, kMaxSequencesPerRequest); !status) return status;
  if (Status status = check_int("prompt_logprobs", request.num_prompt_logprobs, -1, kMaxLogprobs); !status) {
    return status;
  }
  if (request.timeout_s && !(*request.timeout_s > 0.0 && std::isfinite(*request.timeout_s))) {
    return invalid(fmt::format("timeout is {} s, must be greater than 0 and finite", *request.timeout_s), "timeout");
  }
  if (request.cache_salt.size() > kMaxCacheSaltBytes) {
    return invalid(
        fmt::format("cache_salt has {} bytes, at most {} are allowed", request.cache_salt.size(), kMaxCacheSaltBytes),
        "cache_salt");
  }
  if (Status status = validate_sampling(request.sampling, vocab_size); !status) return status;
  if (request.sampling.min_tokens > request.max_tokens) {
    return invalid(fmt::format("min_tokens is {}, must not be above max_tokens, {}", request.sampling.min_tokens,
                               request.max_tokens),
                   "min_tokens");
  }
  return check_ids("prompt", request.prompt_ids, vocab_size);
}

}  // namespace thalweg
