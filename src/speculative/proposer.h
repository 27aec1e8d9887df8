// Guesses at the next tokens of sequences.
//
// A proposer keeps what it needs per slot: an index, or the cache of a small model. It is asked for all rows of a step
// at once, so one with a model computes them in one batch. Nothing it answers can change the output, only how many
// steps the output takes (accept.h). Used by the worker's thread alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/step_plan.h"

namespace thalweg::speculative {

/// Wanted for one slot: what may follow `tokens`, all tokens the slot holds.
struct DraftRequest {
  step::SlotId slot = 0;
  std::span<const std::int32_t> tokens;
  std::int32_t max_drafts = 0;
};

/// Drafts of several requests in one array: those of request i are
/// [cu_drafts[i], cu_drafts[i + 1]).
struct Drafts {
  std::vector<std::int32_t> token_ids;
  std::vector<std::int32_t> cu_drafts;

  std::span<const std::int32_t> of(std::size_t request) const {
    return std::span(token_ids).subspan(static_cast<std::size_t>(cu_drafts[request]),
                                        static_cast<std::size_t>(cu_drafts[request + 1] - cu_drafts[request]));
  }
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  /// Replaces `drafts` by at most `max_drafts` tokens per request. Between two requests for a slot its
  /// tokens only grow, unless it was released.
  virtual void propose(std::span<const DraftRequest> requests, Drafts& drafts) = 0;

  /// The sequence has left the slot. Also called for slots that were never asked for.
  virtual void release(step::SlotId slot) = 0;
};

}  // namespace thalweg::speculative
