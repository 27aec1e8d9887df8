// What dispatch.cc hands to one version: plain pointers, the share of one task. Files compiled for a wide instruction
// set include this and no standard header with code in it.
#pragma once

#include <cstdint>

namespace thalweg::kernels::sparse {

/// Heads of one task: few enough that their queries stay in the first-level cache while rows pass by.
inline constexpr std::int32_t kMaxHeads = 8;

/// Scores of one head in scratch, so that vectors of eight need no tail.
constexpr std::int64_t padded_rows(std::int64_t num_rows) { return (num_rows + 7) / 8 * 8; }

/// One query, some of its heads, the rows it sees.
struct AttendArgs {
  const float* q = nullptr;    // [num_heads, head_dim]
  std::int32_t num_heads = 0;  // at most kMaxHeads
  std::int32_t head_dim = 0;   // a multiple of 32
  float scale = 1.0F;
  const float* sinks = nullptr;  // [num_heads]
  const float* rows = nullptr;   // [num_rows, head_dim] with row stride row_stride in elements: keys, and values
  std::int64_t row_stride = 0;
  std::int32_t num_rows = 0;
  bool rounds_bf16 = false;
  float* weights = nullptr;  // scratch, [num_heads, padded_rows(num_rows)]
  float* out = nullptr;      // [num_heads, head_dim]
};

using Attend = void(const AttendArgs& args);

Attend attend_reference;  // sums in double
Attend attend_avx2;

/// The highest score of a query counts as at least this (DeepSeek-V4.1 specification, section 3.8).
inline constexpr float kLeastMax = -1e30F;

}  // namespace thalweg::kernels::sparse
