#include "worker/step_inputs.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::worker {

void StepInputs::clear() {
  rows_.clear();
  token_ids_.clear();
  positions_.clear();
  cu_seqlens_.assign(1, 0);
  context_lens_.clear();
  slots_.clear();
  logit_tokens_.clear();
  histories_.clear();
  cached_lens_.clear();
  full_from_.clear();
}

std::int32_t StepInputs::add(const RowInput& row) {
  CHECK_GE(row.first_position, 0);
  CHECK_LE(static_cast<std::size_t>(row.first_position), row.token_ids.size());
  const auto history = row.token_ids.first(static_cast<std::size_t>(row.first_position));
  const auto known = row.token_ids.subspan(history.size());
  token_ids_.insert(token_ids_.end(), known.begin(), known.end());
  token_ids_.insert(token_ids_.end(), row.draft_ids.begin(), row.draft_ids.end());
  const auto num_tokens = static_cast<std::int32_t>(known.size() + row.draft_ids.size());
  const std::int32_t context_len = row.first_position + num_tokens;
  const std::int32_t num_blocks = (context_len + block_size_ - 1) / block_size_;
  CHECK_GT(num_tokens, 0);
  CHECK_LE(num_blocks, static_cast<std::int32_t>(row.blocks.size()));
  for (std::int32_t i = 0; i < num_tokens; ++i) positions_.push_back(row.first_position + i);
  const auto end = static_cast<std::int32_t>(token_ids_.size());
  cu_seqlens_.push_back(end);
  context_lens_.push_back(context_len);
  slots_.push_back(row.slot);
  rows_.push_back(row.blocks.first(static_cast<std::size_t>(num_blocks)));
  histories_.push_back(history);
  cached_lens_.push_back(row.cached_len);
  full_from_.push_back(row.full_from);
  const std::int32_t first_logit = num_logits();
  for (std::int32_t i = end - row.num_logits; i < end; ++i) logit_tokens_.push_back(i);
  return first_logit;
}

step::BatchView StepInputs::view() {
  std::size_t width = 0;
  for (const auto& blocks : rows_) width = std::max(width, blocks.size());
  block_tables_.assign(rows_.size() * width, 0);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    std::copy(rows_[row].begin(), rows_[row].end(), block_tables_.begin() + static_cast<std::ptrdiff_t>(row * width));
  }
  return {.token_ids = token_ids_,
          .positions = positions_,
          .cu_seqlens = cu_seqlens_,
          .context_lens = context_lens_,
          .block_tables = block_tables_,
          .max_blocks_per_row = static_cast<std::int32_t>(width),
          .slots = slots_,
          .logit_tokens = logit_tokens_,
          .histories = histories_,
          .cached_lens = cached_lens_,
          .full_from = full_from_};
}

}  // namespace thalweg::worker
