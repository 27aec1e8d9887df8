// Gathers the rows of one forward pass into the arrays that a model reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/batch_view.h"
#include "step/step_plan.h"

namespace thalweg::worker {

/// The arrays are reused from step to step.
class StepInputs {
 public:
  explicit StepInputs(std::int32_t block_size) : block_size_(block_size) {}

  void clear();
  bool empty() const { return rows_.empty(); }
  std::int32_t num_logits() const { return static_cast<std::int32_t>(logit_tokens_.size()); }

  /// Appends a row that computes `head` and then `tail` from `first_position` on, and wants the logits
  /// of its last `num_logits` tokens; returns the index of the first of them. `blocks` must cover the
  /// row and stay alive and unchanged until the view has been used.
  std::int32_t add(step::SlotId slot, std::int32_t first_position, std::span<const std::int32_t> head,
                   std::span<const std::int32_t> tail, std::span<const step::BlockId> blocks, std::int32_t num_logits);

  /// Valid until the next change.
  step::BatchView view();

 private:
  std::int32_t block_size_;
  std::vector<std::span<const step::BlockId>> rows_;  // block tables, cut to what the row reads
  std::vector<std::int32_t> token_ids_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> cu_seqlens_;
  std::vector<std::int32_t> context_lens_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> logit_tokens_;
  std::vector<std::int32_t> block_tables_;
};

}  // namespace thalweg::worker
