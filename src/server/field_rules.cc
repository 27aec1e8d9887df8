#include "server/field_rules.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "thalweg/request.h"

namespace thalweg::server {
namespace {

constexpr double kInt32 = std::numeric_limits<std::int32_t>::max();

constexpr NumberRule kRules[] = {
    {.field = "best_of", .min = 1, .max = 1, .is_integer = true},
    {.field = "max_completion_tokens", .min = 0, .max = kInt32, .is_integer = true},
    {.field = "n_predict", .min = -1, .max = kInt32, .is_integer = true},
    {.field = "top_logprobs", .min = 0, .max = kMaxLogprobs, .is_integer = true},
    {.field = "truncate_prompt_tokens", .min = -1, .max = kInt32, .is_integer = true},
    {.field = "stream_interval", .min = 1, .max = 1024, .is_integer = true},
};

}  // namespace

std::span<const NumberRule> http_number_rules() { return kRules; }

const NumberRule& number_rule(std::string_view field) {
  const auto* rule = std::ranges::find(kRules, field, &NumberRule::field);
  return rule != std::end(kRules) ? *rule : request_number_rule(field);
}

}  // namespace thalweg::server
