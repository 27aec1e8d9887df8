// How keys and values lie in a block: for each kv head its keys, then its values, both cut so that a vector of what a
// kernel computes, scores or outputs, needs no transpose and its inputs stream.
//
//   keys    [block_size / group][head_dim][group]
//   values  [block_size / group][head_dim / 16][group][16]   (the last panel of 8 when head_dim is an odd multiple of
//   8)
//
// A group is 16 tokens, or the largest power of two below that divides the block size. Fast versions want 16.
#pragma once

#include <cstdint>

#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {

inline constexpr std::int32_t kTokenGroup = 16;
inline constexpr std::int32_t kPanel = 16;  // dimensions of values side by side

constexpr std::int32_t token_group(std::int32_t block_size) {
  const std::int32_t lowest_bit = block_size & -block_size;
  return lowest_bit < kTokenGroup ? lowest_bit : kTokenGroup;
}

/// Element index of keys of `head` from the start of a block; values follow after block_size * head_dim elements.
constexpr std::int64_t head_offset(const SequenceBlocks& layout, std::int32_t head) {
  return std::int64_t{2} * head * layout.block_size * layout.head_dim;
}

constexpr std::int64_t key_offset(const SequenceBlocks& layout, std::int32_t head, std::int32_t token,
                                  std::int32_t dim) {
  const std::int32_t group = token_group(layout.block_size);
  return head_offset(layout, head) + (static_cast<std::int64_t>(token / group) * layout.head_dim + dim) * group +
         token % group;
}

constexpr std::int64_t value_offset(const SequenceBlocks& layout, std::int32_t head, std::int32_t token,
                                    std::int32_t dim) {
  const std::int32_t group = token_group(layout.block_size);
  const std::int32_t panel = dim / kPanel * kPanel;
  const std::int32_t width = layout.head_dim - panel < kPanel ? layout.head_dim - panel : kPanel;
  const std::int64_t group_start =
      static_cast<std::int64_t>(layout.block_size + token / group * group) * layout.head_dim;
  return head_offset(layout, head) + group_start + panel * group + token % group * width + dim % kPanel;
}

}  // namespace thalweg::kernels::attention
