// Border: the gated activation between an MLP's or an expert's two products, where the first one has no epilogue for
// it.
#pragma once

#include <cstdint>

#include "device/cuda/table.h"

namespace thalweg::kernels {

struct SwigluSm90Params {
  const void* gate_up;  // bf16 [num_rows, 2 * num_cols], row stride: gate and up alternate; 16-byte aligned rows
  std::int64_t gate_up_stride;
  void* out;  // bf16 [num_rows, num_cols], row stride; 8-byte aligned rows
  std::int64_t out_stride;
  std::int64_t num_rows;
  std::int64_t num_cols;  // a multiple of 4
  float limit;            // gate <= limit, -limit <= up <= limit; 0: no clamp
};

/// out = gate / (1 + exp(-gate)) * up, fp32 inside.
using SwigluSm90 = device::CudaLaunch<SwigluSm90Params>;
SwigluSm90 swiglu_sm90;

}  // namespace thalweg::kernels
