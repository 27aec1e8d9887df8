// The layers of V4.1, one after the other, over the tokens of one step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/deepseek_v41/attention.h"
#include "models/deepseek_v41/pass.h"
#include "models/deepseek_v41/weights.h"

namespace thalweg::models::deepseek_v41 {

/// Used by one thread: begin, then layer 0, 1, ..., then logits.
class Backbone {
 public:
  /// `classes`: token classes of the vocabulary, empty without Engram tables. All references outlive the backbone.
  Backbone(const Config& config, const Weights& weights, const CacheLayout& layout, Rounding rounding,
           std::vector<std::int32_t> classes);

  void reserve(std::int64_t max_tokens);

  /// Starts a pass over all tokens of `batch`; `tap` may be null.
  void begin(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache, const ActivationTap* tap);
  /// Behind the last kv source only tokens from BatchView::full_from on are left; none may be.
  void layer(std::int32_t index);
  /// Logits of batch.logit_tokens, which must not lie before full_from.
  void logits(float* out);

  Pass& pass() { return *pass_; }
  const Frequencies& frequencies() const { return frequencies_; }
  /// Indices into the step's tokens of those that are left, rising.
  std::span<const std::int32_t> tokens_left() const { return tokens_left_; }
  /// The mean over the streams at the input of the draft model's target layers, [tokens left, target layers * hidden].
  Rows& taps() { return taps_; }

 private:
  void begin_slots();
  void drop_tokens(Windows& windows);
  void take_tap(std::int32_t index);

  const Config& config_;
  const Weights& weights_;
  const CacheLayout& layout_;
  const Rounding rounding_;
  const Frequencies frequencies_;
  const std::vector<LayerRole> roles_;
  const std::vector<std::int32_t> classes_;
  std::vector<kernels::EngramHash> hashes_;

  Workspace work_;
  Rows taps_;
  Windows windows_;
  std::optional<Pass> pass_;
  std::vector<std::int32_t> tokens_left_;
};

}  // namespace thalweg::models::deepseek_v41
