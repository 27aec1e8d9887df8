// Root-mean-square normalisation of rows (Zhang and Sennrich 2019).
//
// Numeric contract: the sum of squares in fp32, in an order fixed by num_cols; one row's result is independent of all
// others. Rows in bf16 (GPU only) are widened to fp32, and rounded to nearest even once, at the end.
#pragma once

#include <cstdint>

#include "device/dtype.h"
#include "device/stream.h"

namespace thalweg::kernels {

struct RmsNormParams {
  const void* x = nullptr;  // [num_rows, num_cols], row stride x_stride
  std::int64_t x_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  const float* weight = nullptr;  // [num_cols] or null for ones
  float epsilon = 1e-6F;
  void* out = nullptr;  // may be x if the types are the same
  std::int64_t out_stride = 0;
  // kF32 both, kBF16 both, or kF32 to kBF16; on a CPU kF32 both.
  device::DType x_dtype = device::DType::kF32;
  device::DType out_dtype = device::DType::kF32;
};

/// out = x / sqrt(mean(x^2) + epsilon) * weight.
void rms_norm(device::Stream& stream, const RmsNormParams& params);

/// Normalises each head of each token on its own (Qwen3, Gemma 3): x is [num_tokens, num_heads, head_dim] with token
/// stride x_stride, weight [head_dim]; in place.
void head_rms_norm(device::Stream& stream, float* x, std::int64_t x_stride, std::int64_t num_tokens,
                   std::int32_t num_heads, std::int32_t head_dim, const float* weight, float epsilon);

}  // namespace thalweg::kernels
