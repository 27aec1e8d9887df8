// Does this token end the sequence?
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "scheduler/sequence.h"
#include "thalweg/event.h"

namespace thalweg::scheduler {

struct Stop {
  FinishReason reason = FinishReason::kStop;
  std::optional<std::int32_t> stop_token_id;  // if the request named it
};

/// Looks at the newest token of `sequence.output_ids`. End tokens count only after `min_tokens`
/// others; an end token in the last possible place is a stop, not a cut.
std::optional<Stop> find_stop(const Sequence& sequence, std::span<const std::int32_t> eos_token_ids);

}  // namespace thalweg::scheduler
