// What dispatch.cc hands to one version: plain pointers, the share of one task. Files compiled for a wide instruction
// set include this and no standard header with code in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/dtype.h"

namespace thalweg::kernels::attention {

/// The blocks of one sequence in one layer.
struct SequenceBlocks {
  std::byte* base = nullptr;
  std::int64_t block_stride = 0;              // bytes
  const std::int32_t* block_table = nullptr;  // block ids in the order of positions
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 0;
  device::DType dtype = device::DType::kF16;
};

struct WriteKvArgs {
  SequenceBlocks blocks;
  const float* k = nullptr;  // [num_tokens, num_kv_heads, head_dim]
  std::int64_t k_stride = 0;
  const float* v = nullptr;
  std::int64_t v_stride = 0;
  const std::int32_t* positions = nullptr;  // [num_tokens]
  std::int32_t num_tokens = 0;
};

}  // namespace thalweg::kernels::attention
