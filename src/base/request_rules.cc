#include "base/request_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"
#include "thalweg/request.h"

namespace thalweg {
namespace {

constexpr double kInt32 = 2147483647;
constexpr double kInt64 = 9223372036854775807.0;

constexpr NumberRule kRules[] = {
    {.field = "temperature", .min = 0, .max = 2},
    {.field = "top_p", .min = 0, .max = 1, .min_is_excluded = true},
    {.field = "top_k", .min = -1, .max = kInt32, .is_integer = true},  // -1 is 0 to other engines: off
    {.field = "min_p", .min = 0, .max = 1},
    {.field = "repetition_penalty", .min = 0, .max = 10, .min_is_excluded = true},
    {.field = "presence_penalty", .min = -2, .max = 2},
    {.field = "frequency_penalty", .min = -2, .max = 2},
    {.field = "logit_bias", .min = -100, .max = 100},
    {.field = "n", .min = 1, .max = kMaxSequencesPerRequest, .is_integer = true},
    {.field = "max_tokens", .min = 0, .max = kInt32, .is_integer = true},
    {.field = "min_tokens", .min = 0, .max = kInt32, .is_integer = true},
    {.field = "seed", .min = -kInt64, .max = kInt64, .is_integer = true},
    {.field = "priority", .min = -kInt64, .max = kInt64, .is_integer = true},
    {.field = "timeout", .min = 0, .max = 2592000, .min_is_excluded = true},  // seconds; at most thirty days
    {.field = "logprobs", .min = 0, .max = kMaxLogprobs, .is_integer = true},
    {.field = "prompt_logprobs", .min = 0, .max = kMaxLogprobs, .is_integer = true},
};

struct FloatField {
  std::string_view name;
  float SamplingParams::*value;
};

constexpr FloatField kFloatFields[] = {
    {"temperature", &SamplingParams::temperature},
    {"top_p", &SamplingParams::top_p},
    {"min_p", &SamplingParams::min_p},
    {"repetition_penalty", &SamplingParams::repetition_penalty},
    {"presence_penalty", &SamplingParams::presence_penalty},
    {"frequency_penalty", &SamplingParams::frequency_penalty},
};

Status invalid(std::string message, std::string_view param) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::string(param));
}

Status check_number(std::string_view name, double value) {
  const NumberRule& rule = request_number_rule(name);
  if (in_range(rule, value)) return {};
  return invalid(fmt::format("{} is {}, {}", name, value, describe(rule)), name);
}

/// Counts of logprobs have one value more than the doors offer: -1 is none.
Status check_num_logprobs(std::string_view name, std::int32_t value) {
  return value == -1 ? Status() : check_number(name, value);
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
    if (Status status = check_number(kName, entry.bias); !status) return status;
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

std::span<const NumberRule> request_number_rules() { return kRules; }

const NumberRule& request_number_rule(std::string_view field) {
  const auto* rule = std::ranges::find(kRules, field, &NumberRule::field);
  CHECK(rule != std::end(kRules));
  return *rule;
}

bool in_range(const NumberRule& rule, double value) {
  // Written so that a NaN is outside.
  return (rule.min_is_excluded ? value > rule.min : value >= rule.min) && value <= rule.max;
}

std::string describe(const NumberRule& rule) {
  const std::string_view kind = rule.is_integer ? "an integer" : "a number";
  if (rule.max >= kInt64) return fmt::format("must be {} of 64 bits", kind);
  if (rule.max >= kInt32) return fmt::format("must be {} of at least {}", kind, rule.min);
  return fmt::format("must be {} in {}{}, {}]", kind, rule.min_is_excluded ? "(" : "[", rule.min, rule.max);
}

Status validate_sampling(const SamplingParams& sampling, std::int32_t vocab_size) {
  for (const FloatField& field : kFloatFields) {
    if (Status status = check_number(field.name, sampling.*field.value); !status) return status;
  }
  if (Status status = check_number("top_k", sampling.top_k); !status) return status;
  if (Status status = check_num_logprobs("logprobs", sampling.num_logprobs); !status) return status;
  if (Status status = check_number("min_tokens", sampling.min_tokens); !status) return status;
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
  if (Status status = check_number("max_tokens", request.max_tokens); !status) return status;
  if (Status status = check_number("n", request.num_sequences); !status) return status;
  if (Status status = check_num_logprobs("prompt_logprobs", request.num_prompt_logprobs); !status) return status;
  if (request.timeout_s) {
    if (Status status = check_number("timeout", *request.timeout_s); !status) return status;
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
