// What every architecture offers to the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

  /// Null turns the tap off.
  void set_tap(ActivationTap tap) { tap_ = std::move(tap); }

 protected:
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
