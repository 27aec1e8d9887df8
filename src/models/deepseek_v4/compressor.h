// Compressed entries: a softmax over the tokens of a group, channel by channel, and where entries overlap over those of
// the group before it as well (DeepSeek-AI 2026, DeepSeek-V4, section 2.3).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/rope/rope.h"
#include "models/deepseek_v4/cache_layout.h"
#include "models/deepseek_v4/weights.h"
#include "step/batch_view.h"

namespace thalweg::models::deepseek_v4 {

/// The groups that a step completes, in all layers of one ratio.
class CompletedGroups {
 public:
  struct Group {
    std::int32_t row = 0;    // of the batch
    std::int32_t first = 0;  // its first token's position
    bool is_written = true;  // false: the block has the entry already, and others may read it
  };

  void reserve(std::int64_t max_tokens, std::int32_t ratio, std::int32_t rope_dim);
  void begin(device::Stream& stream, const step::BatchView& batch, const kernels::RopeFrequencies& frequencies);

  std::span<const Group> groups() const { return groups_; }
  /// Entries turn by the position of their group's first token: [num_groups, rope_dim].
  const float* cos_sin() const { return cos_sin_.as<float>(); }
  /// Entries that each token sees, those whose group it completes included: [num_tokens].
  std::span<const std::int32_t> num_visible() const { return num_visible_; }

 private:
  std::int32_t ratio_ = 0;
  std::vector<Group> groups_;
  std::vector<std::int32_t> positions_;  // of the groups' first tokens
  std::vector<std::int32_t> num_visible_;
  device::Buffer cos_sin_;
};

struct CompressParams {
  const CompressorWeights* weights = nullptr;
  const CompletedGroups* groups = nullptr;
  const step::BatchView* batch = nullptr;
  std::span<const Ring> open;  // [num_rows], what tokens before the step contribute
  kernels::PagedRows cache;    // of the entries
  std::int32_t rope_dim = 0;
  const float* x = nullptr;     // [num_tokens, hidden_size]
  float* value_gate = nullptr;  // room for [num_tokens, 2 * width]
  float* entries = nullptr;     // room for [num_groups, dim]
};

/// Writes the entries of completed groups into the cache and the step's contributions into the rings.
void compress(device::Stream& stream, const CompressParams& params);

}  // namespace thalweg::models::deepseek_v4
