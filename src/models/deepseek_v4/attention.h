// DeepSeek-V4's attention: one row per token is key and value of all heads; a query sees a window of rows and
// compressed entries, and the rotation that values carry is taken back from the result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "models/deepseek_v4/cache_layout.h"
#include "models/deepseek_v4/compressor.h"
#include "models/deepseek_v4/config.h"
#include "models/deepseek_v4/weights.h"
#include "step/batch_view.h"

namespace thalweg::models::deepseek_v4 {

/// Cosines and sines of the step's positions, [num_tokens, rope_dim], and the same for turning back.
class Rotation {
 public:
  void reserve(std::int64_t max_tokens, std::int32_t rope_dim);
  void begin(device::Stream& stream, const kernels::RopeFrequencies& frequencies,
             std::span<const std::int32_t> positions);

  const float* forth() const { return forth_.as<float>(); }
  const float* back() const { return back_.as<float>(); }

 private:
  std::int32_t rope_dim_ = 0;
  device::Buffer forth_;
  device::Buffer back_;
};

/// Memory of one attention pass, taken once for the largest step and used by all layers in turn.
class AttentionScratch {
 public:
  AttentionScratch() = default;
  AttentionScratch(std::int64_t max_tokens, const Config& config, const CacheLayout& layout);

  float* bottleneck() { return bottleneck_.as<float>(); }
  float* q() { return q_.as<float>(); }
  float* attended() { return attended_.as<float>(); }
  float* grouped() { return grouped_.as<float>(); }
  float* kv() { return kv_.as<float>(); }
  std::byte* rows() { return rows_.data(); }
  float* value_gate() { return value_gate_.as<float>(); }
  float* entries() { return entries_.as<float>(); }
  float* index_q() { return index_q_.as<float>(); }
  float* index_weights() { return index_weights_.as<float>(); }
  std::int32_t* lists() { return lists_.as<std::int32_t>(); }

 private:
  device::Buffer bottleneck_;  // [max_tokens, q_lora_rank]
  device::Buffer q_;           // [max_tokens, num_heads, head_dim]
  device::Buffer attended_;    // the same
  device::Buffer grouped_;     // [max_tokens, num_output_groups, output_lora_rank]
  device::Buffer kv_;          // [max_tokens, head_dim]
  device::Buffer rows_;        // the same in the cache's format
  device::Buffer value_gate_;  // [max_tokens, 4 * head_dim]
  device::Buffer entries_;     // [max_tokens, head_dim]
  device::Buffer index_q_;     // [max_tokens, index heads, index dim]
  device::Buffer index_weights_;
  device::Buffer lists_;  // [max_tokens, top_k]
};

struct AttentionParams {
  const Config* config = nullptr;
  const CacheLayout* layout = nullptr;
  const AttentionWeights* weights = nullptr;
  std::int32_t layer = 0;
  const step::BatchView* batch = nullptr;
  const CacheMemory* cache = nullptr;
  const Rotation* rotation = nullptr;       // of this kind of layer
  const CompletedGroups* groups = nullptr;  // of this layer's ratio; null without entries
  const float* x = nullptr;                 // [num_tokens, hidden_size]
  float* out = nullptr;                     // the same; may be x
};

void attention(device::Stream& stream, const AttentionParams& params, AttentionScratch& scratch);

}  // namespace thalweg::models::deepseek_v4
