// Drafts of the draft model that was loaded with the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "sampling/row_loops.h"
#include "sampling/row_scratch.h"
#include "speculative/proposer.h"
#include "speculative/survival_limit.h"
#include "thalweg/speculation.h"

namespace thalweg::speculative {

struct DraftModelOptions {
  std::int32_t max_slots = 0;
  std::int32_t vocab_size = 0;
  std::int32_t max_drafts = 0;  // per row and step; at most the model's block size
  SpeculationOptions speculation;
};

/// Bytes of logits that a proposer takes.
std::int64_t draft_logit_bytes(const DraftModelOptions& options);

/// All requests of a step are one pass of the draft model, always over its whole block; then their drafts are drawn
/// one after another, those of all requests side by side. A draft is drawn as the sequence's own tokens are
/// (temperature, filters, bans), except that drafts before it do not count for penalties. Where the target is to match,
/// it is drawn by the very numbers that the target will use at its place, and so mostly is what the target draws.
class DraftModelProposer final : public Proposer {
 public:
  /// `model` outlives the proposer; nobody else calls it. Reserves its memory.
  DraftModelProposer(models::DraftModel& model, const sampling::RowLoops& loops, const DraftModelOptions& options);

  void propose(device::Stream& stream, const models::CacheMemory& cache, std::span<const DraftRequest> requests,
               Drafts& drafts) override;
  void observe(step::SlotId slot, std::int32_t num_drafts, std::int32_t num_accepted) override;
  void release(step::SlotId slot) override;

 private:
  /// One request during a call.
  struct Draft {
    std::int32_t limit = 0;      // that are verified
    std::int32_t num_drawn = 0;  // so far, added to the request's tokens
    bool ended = false;          // its logits could not be drawn from
    std::vector<float> confidences;
  };

  void begin(device::Stream& stream, const models::CacheMemory& cache, std::span<const DraftRequest> requests);
  std::int32_t num_rounds() const;
  void draw_round(device::Stream& stream, std::int32_t round, std::span<const DraftRequest> requests);
  void draw(std::int32_t round, const DraftRequest& request, Draft& draft, std::span<float> logits,
            sampling::RowScratch& scratch) const;
  void finish(std::span<const DraftRequest> requests, Drafts& drafts);
  std::span<float> logits_of(std::int32_t round, std::size_t request);

  bool keeps_distributions() const { return options_.speculation.acceptance == AcceptanceMethod::kRejection; }

  models::DraftModel& model_;
  const sampling::RowLoops& loops_;
  const DraftModelOptions options_;
  std::vector<SurvivalLimit> limits_;  // per slot
  /// [rounds, max_slots, vocab_size]: one round where only the tokens count, max_drafts where their distributions do.
  device::Buffer logits_;

  // One call's work, kept for its memory.
  std::vector<models::DraftQuery> queries_;
  std::vector<Draft> drafts_;
  std::vector<std::int32_t> previous_;
  std::vector<float> confidences_;
  std::vector<sampling::RowScratch> scratch_;  // per thread
};

}  // namespace thalweg::speculative
