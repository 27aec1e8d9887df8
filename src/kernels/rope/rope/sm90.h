// Border: the GPU's table of cosines and sines; queries and keys are rotated where they are written
// (kernels/attention/paged_attention/sm90.h).
#pragma once

#include <cstdint>

#include "device/cuda/table.h"

namespace thalweg::kernels::rotation {

struct RopeTableSm90Params {
  const float* inverse_frequencies;  // [rope_dim / 2]
  float magnitude;
  std::int32_t rope_dim;
  const std::int32_t* positions;  // [num_tokens]
  std::int32_t num_tokens;
  float* cos_sin;  // [num_tokens, rope_dim]: cosines, then sines
};

using RopeTableSm90 = device::CudaLaunch<RopeTableSm90Params>;
RopeTableSm90 rope_table_sm90;

}  // namespace thalweg::kernels::rotation
