// The tokens that a forward pass still computes: all of the step's, until the last layer has written its keys and
// values; from there only those whose logits are wanted. A prompt chunk that is not the last one ends there.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/attention/paged_attention.h"

namespace thalweg::layers {

/// Reused from step to step; its arrays keep their memory.
class TokenRows {
 public:
  /// One row per token: [num_tokens, width].
  struct Matrix {
    float* rows;
    std::int64_t width;
  };

  /// Starts a pass over all tokens of `batch`, whose arrays must outlive it.
  void begin(const kernels::PagedBatch& batch) { batch_ = batch; }

  std::int64_t count() const { return static_cast<std::int64_t>(batch_.positions.size()); }
  const kernels::PagedBatch& batch() const { return batch_; }

  /// Drops all tokens but `tokens` (rising) from the batch and moves the kept rows of `matrices` to their front.
  void keep(std::span<const std::int32_t> tokens, std::initializer_list<Matrix> matrices);

 private:
  kernels::PagedBatch batch_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> cu_seqlens_;
};

}  // namespace thalweg::layers
