// Border: what the program hands to the GPU version.
#pragma once

#include <cstdint>

#include "device/cuda/table.h"

namespace thalweg::kernels::norm {

/// Rows are [num_groups, rows_per_group]; strides count elements of the side's type, from group to group and from row
/// to row. Any alignment of whole elements will do, 16 bytes are fast.
struct RmsNormSm90Params {
  const void* x;
  std::int64_t x_group_stride;
  std::int64_t x_row_stride;
  void* out;  // may be x if the types are the same
  std::int64_t out_group_stride;
  std::int64_t out_row_stride;
  std::int64_t num_groups;
  std::int64_t rows_per_group;
  std::int64_t num_cols;
  const float* weight;  // [num_cols] or null
  float epsilon;
  bool x_is_bf16;    // else fp32
  bool out_is_bf16;  // must be where x is
};

using RmsNormSm90 = device::CudaLaunch<RmsNormSm90Params>;
RmsNormSm90 rms_norm_sm90;

}  // namespace thalweg::kernels::norm
