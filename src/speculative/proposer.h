// Guesses at the next tokens of sequences.
//
// A proposer keeps what it needs per slot: an index, how drafts fared, or nothing where the model keeps it. It is asked
// for all rows of a step at once, so one with a model computes them in one batch. Whatever it answers, the output keeps
// the model's distribution (accept.h, rejection.h); only how many steps the output takes depends on it. Used by the
// worker's thread alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/stream.h"
#include "models/model.h"
#include "sampling/sequence_sampler.h"
#include "step/step_plan.h"

namespace thalweg::speculative {

/// Wanted for one slot: what may follow `tokens`, all tokens the slot holds. The model has computed all but the last.
struct DraftRequest {
  step::SlotId slot = 0;
  std::vector<std::int32_t>* tokens = nullptr;  // may grow by drafts during the call, and is as before after it
  const sampling::SequenceSampler* sampler = nullptr;
  std::int32_t max_drafts = 0;  // > 0
};

/// Drafts of several requests in one array: those of request i are
/// [cu_drafts[i], cu_drafts[i + 1]).
struct Drafts {
  std::vector<std::int32_t> token_ids;
  std::vector<std::int32_t> cu_drafts;
  /// As `token_ids`: the distribution that the draft was drawn from, [vocab_size]; empty, or null for one: the draft is
  /// a certain choice. Valid until the proposer is asked again.
  std::vector<const float*> distributions;

  std::size_t num_requests() const { return cu_drafts.size() - 1; }
  std::span<const std::int32_t> of(std::size_t request) const { return part(token_ids, request); }
  std::span<const float* const> distributions_of(std::size_t request) const {
    if (distributions.empty()) return {};
    return part(distributions, request);
  }

 private:
  template <typename T>
  std::span<const T> part(const std::vector<T>& all, std::size_t request) const {
    return std::span(all).subspan(static_cast<std::size_t>(cu_drafts[request]),
                                  static_cast<std::size_t>(cu_drafts[request + 1] - cu_drafts[request]));
  }
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  /// Replaces `drafts` by at most `max_drafts` tokens per request. Between two requests for a slot its
  /// tokens only grow, unless it was released. `cache` is the memory that the model computes in.
  virtual void propose(device::Stream& stream, const models::CacheMemory& cache, std::span<const DraftRequest> requests,
                       Drafts& drafts) = 0;

  /// What became of the slot's drafts; steps without drafts are not reported.
  virtual void observe(step::SlotId slot, std::int32_t num_drafts, std::int32_t num_accepted) = 0;

  /// The sequence has left the slot. Also called for slots that were never asked for.
  virtual void release(step::SlotId slot) = 0;
};

}  // namespace thalweg::speculative
