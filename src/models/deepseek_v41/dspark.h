// DSpark: three blocks beside the backbone that propose a block of tokens in one pass, and a bigram head that makes
// each proposal depend on the one before (DeepSeek-V4.1 specification, section 7).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/deepseek_v41/backbone.h"
#include "models/model.h"

namespace thalweg::models::deepseek_v41 {

class Dspark final : public DraftModel {
 public:
  /// All references outlive it.
  Dspark(const Config& config, const Weights& weights, const CacheLayout& layout, const Frequencies& frequencies,
         Rounding rounding);

  /// After the backbone's layers: keeps in the slots what later drafts see of this step's tokens.
  void remember(Backbone& backbone);

  std::int32_t block_size() const override { return config_.dspark.block_size; }
  void reserve(std::int32_t max_queries) override;
  void begin(device::Stream& stream, std::span<const DraftQuery> queries, const CacheMemory& cache) override;
  void next(device::Stream& stream, std::int32_t i, std::span<const std::int32_t> previous, float* logits,
            float* confidences) override;

  /// See Model::set_tap; stages count as layers behind the backbone's.
  void set_tap(const ActivationTap* tap) { tap_ = tap; }

 private:
  void fill_batch(std::span<const DraftQuery> queries);
  void run_stage(Pass& pass, std::int32_t stage, std::span<const kernels::WindowRing> rings);

  const Config& config_;
  const Weights& weights_;
  const CacheLayout& layout_;
  const Frequencies& frequencies_;
  const Rounding rounding_;
  const ActivationTap* tap_ = nullptr;

  Workspace work_;
  Rows collapsed_;    // [max_queries * block_size, hidden_size]
  Rows base_logits_;  // the same rows, [vocab_size]
  Rows markov_;       // [max_queries, markov_rank]
  Rows biases_;       // [max_queries, vocab_size]

  // The pass's tokens.
  std::vector<std::int32_t> token_ids_, positions_, cu_seqlens_, context_lens_, slots_;
};

}  // namespace thalweg::models::deepseek_v41
