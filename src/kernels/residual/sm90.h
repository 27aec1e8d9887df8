// Border: the residual stream on the GPU. It is kept in fp32; what the products read of it is normalised and bf16.
#pragma once

#include <cstdint>

#include "device/cuda/table.h"

namespace thalweg::kernels {

struct EmbedSm90Params {
  const void* table;        // bf16 [num_ids, num_cols], rows one after the other
  const std::int32_t* ids;  // [num_tokens]; one outside the table embeds as zeros
  std::int64_t num_ids;
  std::int64_t num_tokens;
  std::int64_t num_cols;  // a multiple of 8
  float scale;            // Gemma's square root of the width; 1 for others
  float* out;             // [num_tokens, num_cols]
};

using EmbedSm90 = device::CudaLaunch<EmbedSm90Params>;
EmbedSm90 embed_sm90;

struct AddRmsNormSm90Params {
  float* residual;      // [num_rows, num_cols], rows one after the other; `x` is added
  const void* x;        // bf16 [num_rows, num_cols]; null adds nothing
  const float* weight;  // [num_cols]
  float epsilon;
  std::int64_t num_rows;
  std::int64_t num_cols;  // a multiple of 8, at most 16,384
  void* out;              // bf16 [num_rows, num_cols]: the norm of the sum
};

/// The order of a row's sum depends on num_cols alone.
using AddRmsNormSm90 = device::CudaLaunch<AddRmsNormSm90Params>;
AddRmsNormSm90 add_rms_norm_sm90;

}  // namespace thalweg::kernels
