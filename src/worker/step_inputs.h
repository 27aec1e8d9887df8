// Gathers the rows of one forward pass into the arrays that a model reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/batch_view.h"
#include "step/step_plan.h"

namespace thalweg::worker {

/// Tokens of one sequence. The spans stay alive and unchanged until the view has been used.
struct RowInput {
  step::SlotId slot = 0;
  std::span<const std::int32_t> token_ids;  // from the sequence's first token to the last that is computed
  std::int32_t first_position = 0;          // computed from here on; what is before is history
  std::span<const std::int32_t> draft_ids;  // computed after them
  std::span<const step::BlockId> blocks;    // cover all of it
  std::int32_t num_logits = 0;              // logits of that many last tokens are wanted
  std::int32_t cached_len = 0;              // step::BatchView::cached_lens
  std::int32_t full_from = 0;               // step::BatchView::full_from
};

/// The arrays are reused from step to step.
class StepInputs {
 public:
  explicit StepInputs(std::int32_t block_size) : block_size_(block_size) {}

  void clear();
  bool empty() const { return rows_.empty(); }
  std::int32_t num_logits() const { return static_cast<std::int32_t>(logit_tokens_.size()); }

  /// Returns the index of the first of the row's logits.
  std::int32_t add(const RowInput& row);

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
  std::vector<std::span<const std::int32_t>> histories_;
  std::vector<std::int32_t> cached_lens_;
  std::vector<std::int32_t> full_from_;
  std::vector<std::int32_t> block_tables_;
};

}  // namespace thalweg::worker
