#include "scheduler/stop_condition.h"

#include <algorithm>

namespace thalweg::scheduler {
namespace {

bool contains(std::span<const std::int32_t> ids, std::int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

std::optional<Stop> find_stop(const Sequence& sequence, std::span<const std::int32_t> eos_token_ids) {
  const SamplingParams& sampling = *sequence.request->sampling;
  const auto num_output_tokens = static_cast<std::int32_t>(sequence.output_ids.size());
  const std::int32_t token_id = sequence.output_ids.back();
  if (num_output_tokens > sampling.min_tokens) {
    if (contains(sampling.stop_token_ids, token_id)) return Stop{FinishReason::kStop, token_id};
    if (!sampling.ignore_eos && contains(eos_token_ids, token_id)) return Stop{FinishReason::kStop, {}};
  }
  if (num_output_tokens >= sequence.request->max_tokens) return Stop{FinishReason::kLength, {}};
  return std::nullopt;
}

}  // namespace thalweg::scheduler
