// How the GPU keeps a layer's keys and values: as the tensor core reads them.
//
// A block holds, for each kv head, its keys and then its values, bf16, each as
//
//   [block_size / 8][head_dim / 64][8 tokens][64 dimensions]
//
// where the 16-byte chunk c of a token's 64 dimensions lies at place c ^ (token % 8). That is the image which wgmma and
// ldmatrix want to find in shared memory (128-byte swizzle), so any run of 16 tokens is one contiguous copy without a
// tensor map, whatever the block size, and keys and values need no transpose: keys are read along dimensions, values
// across them.
//
// Values of the tokens after a sequence's last one are zero up to the next multiple of 16: whoever writes the last
// token writes them. They meet probabilities of zero, and zero times what was never written might be NaN.
#pragma once

#include <cstdint>

namespace thalweg::kernels::attention {

inline constexpr std::int32_t kCopyTokens = 16;  // of one contiguous copy; a block size is a multiple

/// Keys that are scored together. A larger one would not fit beside the outputs of 64 queries in registers.
constexpr std::int32_t tile_tokens(std::int32_t head_dim) { return head_dim == 256 ? 64 : 128; }

/// Keys whose weighted sum is made without regard to other keys; sums of partitions are then folded in order. A
/// constant, so that how the keys of a query are added depends on positions alone, whichever kernel adds them.
inline constexpr std::int32_t kPartitionTokens = 1024;

/// Element index within one head's keys (or values) of a block.
constexpr std::int32_t kv_element(std::int32_t head_dim, std::int32_t token, std::int32_t dim) {
  const std::int32_t atom = token / 8 * (head_dim / 64) + dim / 64;
  return atom * 512 + token % 8 * 64 + ((dim % 64 / 8) ^ (token % 8)) * 8 + dim % 8;
}

/// Elements from the start of a block to the keys of `kv_head`; its values follow after block_size * head_dim.
constexpr std::int64_t kv_head_offset(std::int32_t head_dim, std::int32_t block_size, std::int32_t kv_head) {
  return std::int64_t{2} * kv_head * block_size * head_dim;
}

constexpr std::int64_t kv_block_elements(std::int32_t num_kv_heads, std::int32_t head_dim, std::int32_t block_size) {
  return kv_head_offset(head_dim, block_size, num_kv_heads);
}

}  // namespace thalweg::kernels::attention
