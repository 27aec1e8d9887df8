#include "server/field_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "thalweg/request.h"

namespace thalweg::server {
namespace {

constexpr double kInt32 = 2147483647;
constexpr double kInt64 = 9223372036854775807.0;

constexpr NumberRule kRules[] = {
    {.field = "temperature", .min = 0, .max = 2},
    {.field = "top_p", .min = 0, .max = 1, .min_is_excluded = true},
    {.field = "top_k", .min = -1, .max = kInt32, .is_integer = true},
    {.field = "min_p", .min = 0, .max = 1},
    {.field = "repetition_penalty", .min = 0, .max = 10, .min_is_excluded = true},
    {.field = "presence_penalty", .min = -2, .max = 2},
    {.field = "frequency_penalty", .min = -2, .max = 2},
    {.field = "logit_bias", .min = -100, .max = 100},
    {.field = "n", .min = 1, .max = kMaxSequencesPerRequest, .is_integer = true},
    {.field = "best_of", .min = 1, .max = 1, .is_integer = true},
    {.field = "max_tokens", .min = 0, .max = kInt32, .is_integer = true},
    {.field = "max_completion_tokens", .min = 0, .max = kInt32, .is_integer = true},
    {.field = "n_predict", .min = -1, .max = kInt32, .is_integer = true},
    {.field = "min_tokens", .min = 0, .max = kInt32, .is_integer = true},
    {.field = "seed", .min = -kInt64, .max = kInt64, .is_integer = true},
    {.field = "priority", .min = -kInt64, .max = kInt64, .is_integer = true},
    {.field = "timeout", .min = 0, .max = 2592000, .min_is_excluded = true},  // seconds; at most thirty days
    {.field = "logprobs", .min = 0, .max = kMaxLogprobs, .is_integer = true},
    {.field = "top_logprobs", .min = 0, .max = kMaxLogprobs, .is_integer = true},
    {.field = "prompt_logprobs", .min = 0, .max = kMaxLogprobs, .is_integer = true},
    {.field = "truncate_prompt_tokens", .min = -1, .max = kInt32, .is_integer = true},
    {.field = "stream_interval", .min = 1, .max = 1024, .is_integer = true},
};

}  // namespace

std::span<const NumberRule> number_rules() { return kRules; }

const NumberRule& number_rule(std::string_view field) {
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

}  // namespace thalweg::server
