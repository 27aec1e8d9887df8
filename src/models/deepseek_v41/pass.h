// One forward pass of V4.1: the tokens it still computes, the memory it runs through, and where the rest of the
// sequences lies. Parts of the model are functions over it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "kernels/attention/sparse_attention.h"
#include "kernels/rope/rope.h"
#include "layers/token_rows.h"
#include "models/deepseek_v41/cache_layout.h"
#include "models/deepseek_v41/config.h"
#include "models/deepseek_v41/rounding.h"
#include "models/model.h"
#include "step/batch_view.h"

namespace thalweg::models::deepseek_v41 {

/// fp32 rows of one width for the largest step.
class Rows {
 public:
  Rows() = default;
  Rows(std::int64_t max_tokens, std::int64_t width)
      : width_(width), buffer_(static_cast<std::size_t>(max_tokens * width) * sizeof(float)) {}
  std::int64_t width() const { return width_; }
  float* data() { return buffer_.as<float>(); }
  layers::TokenRows::Matrix matrix() { return {data(), width_}; }

 private:
  std::int64_t width_ = 0;
  device::Buffer buffer_;
};

/// The two frequency sets: layers that see only their window, and all others with YaRN (section 0.6).
struct Frequencies {
  std::vector<float> window, compressed;
  explicit Frequencies(const Config& config);
  const std::vector<float>& of(std::int32_t ratio) const { return ratio == 0 ? window : compressed; }
};

/// Cosines and sines [num_positions, rope_dim] as kernels::rope reads them. Angles are fp32 products, as the model was
/// trained with. `inverse` turns back.
void fill_rotary(std::span<const float> frequencies, std::span<const std::int32_t> positions, bool inverse, float* out);

/// Rotates the last rope_dim channels of each head.
void rotate(device::Stream& stream, const Config& config, std::int64_t num_tokens, std::int32_t num_heads,
            std::int32_t head_dim, const float* rotary, float* x);

struct Workspace {
  Workspace() = default;
  Workspace(const Config& config, const CacheLayout& layout, std::int64_t max_tokens);

  Rows streams;                    // the residual, [num_streams * hidden_size]
  Rows pre, next_pre, post, comb;  // mixing weights
  Rows x;                          // input of a sublayer
  Rows out;                        // its output
  Rows quantized;                  // the widest input of a product in its FP8 form
  Rows q_down, q, attended, grouped;
  Rows kv;
  Rows compressor;  // values and gates
  Rows latents, index_keys;
  Rows index_q, index_weights;
  Rows gate_logits, gate_weights;
  Rows rotary, inverse_rotary, entry_rotary;  // of the kind that the layer uses
  Rows engram, engram_kv;
  device::Buffer step_rows;              // [max_tokens] window rows of the layer
  std::vector<std::int32_t> expert_ids;  // [max_tokens, top_k]
  std::vector<std::int32_t> lists;       // [max_tokens, index top_k]: the newest index's choice
  std::vector<std::int32_t> candidates;  // [max_tokens, max_candidate_blocks]
  std::vector<std::int32_t> num_visible;
};

/// `batch` and what it points to outlive the pass.
struct Pass {
  device::Stream& stream;
  const Config& config;
  const CacheLayout& layout;
  const Frequencies& frequencies;
  Rounding rounding;
  Workspace& work;
  step::BatchView batch;
  CacheMemory cache;
  const ActivationTap* tap = nullptr;  // null: nobody looks

  layers::TokenRows rows;          // of the tokens still computed
  std::int32_t rotary_ratio = -1;  // whose tables the workspace holds; -1: none

  std::int64_t num_tokens() const { return rows.count(); }
  const std::int32_t* block_table(std::int64_t row) const {
    return batch.block_tables.data() + row * batch.max_blocks_per_row;
  }
  void show(std::int32_t layer, const char* name, std::int64_t num_rows, std::int64_t num_cols,
            const float* data) const {
    if (tap != nullptr && *tap) (*tap)("layers." + std::to_string(layer) + "." + name, num_rows, num_cols, data);
  }
  void show(std::int32_t layer, const char* name, std::span<const std::int32_t> values, std::int64_t num_cols) const;
};

/// Makes the rotary tables those of a layer with `ratio` for the pass's tokens.
void use_rotary(Pass& pass, std::int32_t ratio);

}  // namespace thalweg::models::deepseek_v41
