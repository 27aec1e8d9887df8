// The fp32 buffers that a decoder's step runs through, taken once for the largest step.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/buffer.h"
#include "layers/attention.h"
#include "step/batch_view.h"

namespace thalweg::models {

class Activations {
 public:
  Activations() = default;
  /// `inner_size`: width of the feed-forward part between its projections.
  Activations(std::int64_t max_tokens, const layers::AttentionShape& attention, std::int64_t inner_size)
      : max_tokens_(max_tokens),
        hidden_(floats(max_tokens * attention.hidden_size)),
        normed_(floats(max_tokens * attention.hidden_size)),
        shared_(floats(max_tokens * std::max(attention.qkv_size() + attention.q_size(), inner_size))),
        attended_offset_(max_tokens * attention.qkv_size()) {}

  /// A step larger than `reserve` was told, or a step before it, is the worker's mistake.
  void check_room(const step::BatchView& batch) const { CHECK_LE(batch.num_tokens(), max_tokens_); }

  float* hidden() { return hidden_.as<float>(); }  // the residual stream, [max_tokens, hidden_size]
  float* normed() { return normed_.as<float>(); }  // input of the next part, [max_tokens, hidden_size]

  // Attention and feed-forward take turns with one buffer: either qkv [max_tokens, qkv_size] and attended
  // [max_tokens, q_size], or inner [max_tokens, inner_size].
  float* qkv() { return shared_.as<float>(); }
  float* attended() { return shared_.as<float>() + attended_offset_; }
  float* inner() { return shared_.as<float>(); }

 private:
  static device::Buffer floats(std::int64_t count) {
    return device::Buffer(static_cast<std::size_t>(count) * sizeof(float));
  }

  std::int64_t max_tokens_ = 0;
  device::Buffer hidden_;
  device::Buffer normed_;
  device::Buffer shared_;
  std::int64_t attended_offset_ = 0;
};

/// Cosines and sines of a step's positions, [max_tokens, rotary size].
inline device::Buffer rotary_buffer(std::int64_t max_tokens, std::int32_t head_dim) {
  return device::Buffer(static_cast<std::size_t>(max_tokens * head_dim) * sizeof(float));
}

}  // namespace thalweg::models
