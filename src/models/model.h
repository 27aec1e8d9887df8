// What every architecture offers to the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/stream.h"
#include "kv_cache/cache_spec.h"
#include "step/batch_view.h"
#include "thalweg/error.h"

namespace thalweg::models {

struct ModelInfo {
  std::string architecture;  // "llama", "qwen3", ...
  std::int32_t vocab_size = 0;
  std::int32_t max_position = 0;  // context length the model was made for
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int64_t num_parameters = 0;
  std::int64_t weight_bytes = 0;
  /// > 0: of a prompt all layers are computed for this many last tokens only, the first layers for all (bounded
  /// replay); then logits of earlier prompt tokens are not to be had, unless BatchView::full_from asks for them.
  std::int32_t prefill_tail_tokens = 0;
  kv_cache::CacheSpec cache;
};

/// Memory the worker lends to the model. `blocks` holds num_blocks * cache.bytes_per_block bytes,
/// `states` max_slots * cache.state_bytes_per_slot; how they are divided is the model's business.
struct CacheMemory {
  std::byte* blocks = nullptr;
  std::int64_t num_blocks = 0;
  std::byte* states = nullptr;
  std::int32_t max_slots = 0;
};

/// Shows an intermediate tensor to a test: name ("layers.3.attention"), rows, columns, fp32 data.
using ActivationTap = std::function<void(std::string_view name, std::int64_t rows, std::int64_t cols, const float*)>;

/// A sequence that wants drafts: forward has computed all its tokens before `position`, where `anchor` stands.
struct DraftQuery {
  std::int32_t slot = 0;
  std::int32_t position = 0;
  std::int32_t anchor = 0;
};

/// A small model beside the large one that guesses on from the state which forward left in the slots. One pass
/// prepares a block of drafts; then they are drawn one by one, because each depends on the one before.
class DraftModel {
 public:
  virtual ~DraftModel() = default;

  /// Drafts of one pass.
  virtual std::int32_t block_size() const = 0;

  /// Takes memory for passes of at most that many queries; called once.
  virtual void reserve(std::int32_t max_queries) = 0;

  /// Prepares a block for each query. Changes no state of the slots.
  virtual void begin(device::Stream& stream, std::span<const DraftQuery> queries, const CacheMemory& cache) = 0;

  /// After begin, for i = 0, 1, ...: `logits` [num_queries, vocab_size] of draft i when `previous` [num_queries] are
  /// the tokens before it (the anchors, then the drafts i - 1); `confidences` [num_queries]: the model's own estimate,
  /// in [0, 1], that draft i is accepted if those before it are.
  virtual void next(device::Stream& stream, std::int32_t i, std::span<const std::int32_t> previous, float* logits,
                    float* confidences) = 0;
};

/// Weights are immutable after loading; one thread calls forward.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;

  /// Takes activations' memory for at most that many tokens; called once before forward.
  virtual void reserve(std::int32_t max_num_batched_tokens) = 0;

  /// Computes all tokens of the batch, writes their keys and values into the cache, and the logits
  /// of `batch.logit_tokens` to `logits`, [num_logits, vocab_size] fp32.
  virtual void forward(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache,
                       float* logits) = 0;

  /// The draft model that was loaded with this one, or null. Part of the model; used by the thread that calls forward.
  virtual DraftModel* draft_model() { return nullptr; }

  /// Null turns the tap off.
  void set_tap(ActivationTap tap) { tap_ = std::move(tap); }

 protected:
  const ActivationTap* tap() const { return &tap_; }
  void show(std::string_view name, std::int64_t rows, std::int64_t cols, const float* data) const {
    if (tap_) tap_(name, rows, cols, data);
  }
  /// The residual stream after layer `index`, "layers.<index>".
  void show_layer(std::int32_t index, std::int64_t rows, const float* hidden) const {
    if (tap_) tap_("layers." + std::to_string(index), rows, info().hidden_size, hidden);
  }

 private:
  ActivationTap tap_;
};

}  // namespace thalweg::models
