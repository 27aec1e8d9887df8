// Where V4.1's activations are rounded, and products under that rule (DeepSeek-V4.1 specification, section 0.5).
//
// | operation                            | fp32 | reference     | fast          |
// |--------------------------------------|------|---------------|---------------|
// | input of products with FP8/FP4       | fp32 | FP8 per 32    | FP8 per 32    |
// | output of products, norms, attention | fp32 | bf16          | bf16          |
// | router, mixing, heads, index scores  | fp32 | fp32          | fp32          |
// | weight of a routed expert            | before its down projection | before | after |
// | window rows, compressed entries, index queries and keys | FP8, FP4-N, FP4-U in all three ||
//
// Sums are fp32 everywhere.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "kernels/linear/linear.h"
#include "kernels/quant/quant.h"
#include "models/load_options.h"

namespace thalweg::models::deepseek_v41 {

struct Rounding {
  bool quantizes_activations = false;
  bool rounds_bf16 = false;
  bool weighs_before_down = true;
};

inline Rounding rounding_of(Numerics numerics) {
  switch (numerics) {
    case Numerics::kFp32:
      return {};
    case Numerics::kReference:
      return {.quantizes_activations = true, .rounds_bf16 = true};
    case Numerics::kFast:
      return {.quantizes_activations = true, .rounds_bf16 = true, .weighs_before_down = false};
  }
  return {};
}

inline void round(device::Stream& stream, const Rounding& rounding, float* x, std::int64_t count) {
  if (rounding.rounds_bf16) kernels::round_bf16(stream, x, count);
}

/// x as a product with FP8 or FP4 weights sees it: itself, or its quantised form in `scratch`. Both [num_rows,
/// num_cols].
inline const float* activations(device::Stream& stream, const Rounding& rounding, std::int64_t num_rows,
                                std::int64_t num_cols, const float* x, float* scratch) {
  if (!rounding.quantizes_activations) return x;
  kernels::fake_quantize(stream, kernels::QuantFormat::kF8Block32, num_rows, num_cols, x, num_cols, scratch, num_cols);
  return scratch;
}

/// out = x * W^T in fp32, [num_rows, weight.num_rows()].
inline void product(device::Stream& stream, const kernels::LinearWeight& weight, std::int64_t num_rows, const float* x,
                    float* out) {
  kernels::linear(stream, {.x = x,
                           .x_stride = weight.num_cols(),
                           .num_tokens = num_rows,
                           .weight = &weight,
                           .out = out,
                           .out_stride = weight.num_rows()});
}

inline void rounded_product(device::Stream& stream, const Rounding& rounding, const kernels::LinearWeight& weight,
                            std::int64_t num_rows, const float* x, float* out) {
  product(stream, weight, num_rows, x, out);
  round(stream, rounding, out, num_rows * weight.num_rows());
}

}  // namespace thalweg::models::deepseek_v41
