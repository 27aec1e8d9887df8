// What both kernels of a product do with sums that are done. Device code only.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/linear/epilogue.h"

namespace thalweg::kernels::sm90 {

struct Output {
  void* out;
  std::int64_t stride;
  std::int32_t num_tokens;
  std::int32_t num_rows;
  bool is_f32;
  Epilogue epilogue;
};

__device__ __forceinline__ float silu_mul(float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; }

__device__ __forceinline__ float gelu_mul(float gate, float up) {
  const float inner = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
  const float tanh = 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * inner));
  return 0.5f * gate * (1.0f + tanh) * up;
}

__device__ __forceinline__ float gated(Epilogue epilogue, float gate, float up) {
  return epilogue == Epilogue::kSiluMul ? silu_mul(gate, up) : gelu_mul(gate, up);
}

__device__ __forceinline__ bool is_gated(Epilogue epilogue) {
  return epilogue == Epilogue::kSiluMul || epilogue == Epilogue::kGeluMul;
}

/// One value at [token, column] of `out`.
__device__ __forceinline__ void store_value(const Output& output, std::int64_t token, std::int64_t column,
                                            float value) {
  const std::int64_t at = token * output.stride + column;
  const bool accumulates = output.epilogue == Epilogue::kAccumulate;
  if (output.is_f32) {
    float* out = static_cast<float*>(output.out) + at;
    *out = accumulates ? *out + value : value;
  } else {
    __nv_bfloat16* out = static_cast<__nv_bfloat16*>(output.out) + at;
    *out = __float2bfloat16_rn(accumulates ? __bfloat162float(*out) + value : value);
  }
}

/// kNum (4 or 8) neighbouring values, in one or two accesses of 8 or 16 bytes.
template <int kNum>
__device__ __forceinline__ void store_values(const Output& output, std::int64_t token, std::int64_t column,
                                             float* values) {
  const std::int64_t at = token * output.stride + column;
  const bool accumulates = output.epilogue == Epilogue::kAccumulate;
  if (output.is_f32) {
    float4* out = reinterpret_cast<float4*>(static_cast<float*>(output.out) + at);
#pragma unroll
    for (int i = 0; i < kNum / 4; ++i) {
      float4 v = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
      if (accumulates) {
        const float4 old = out[i];
        v = make_float4(old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w);
      }
      out[i] = v;
    }
  } else {
    struct alignas(2 * kNum) Pack {
      __nv_bfloat162 pairs[kNum / 2];
    };
    Pack* out = reinterpret_cast<Pack*>(static_cast<__nv_bfloat16*>(output.out) + at);
    if (accumulates) {
      const Pack old = *out;
#pragma unroll
      for (int i = 0; i < kNum / 2; ++i) {
        const float2 pair = __bfloat1622float2(old.pairs[i]);
        values[2 * i] += pair.x;
        values[2 * i + 1] += pair.y;
      }
    }
    Pack pack;
#pragma unroll
    for (int i = 0; i < kNum / 2; ++i) pack.pairs[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    *out = pack;
  }
}

/// Among the 4 lanes of a quad: lane i's w[j] becomes lane j's w[i].
__device__ __forceinline__ void transpose_quad(float (&w)[4]) {
  const int lane = static_cast<int>(threadIdx.x) & 3;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float got = __shfl_xor_sync(0xFFFFFFFF, lane & 1 ? w[i] : w[i + 1], 1);
    (lane & 1 ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float got = __shfl_xor_sync(0xFFFFFFFF, lane & 2 ? w[i] : w[i + 2], 2);
    (lane & 2 ? w[i] : w[i + 2]) = got;
  }
}

__device__ __forceinline__ float pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const float&>(pair);
}

/// Stores the sums of a warp, d[16 tokens, kColumns], times `scale`. `token` is that of d[0] in this lane. Lanes of a
/// quad exchange four column blocks first, so that each then has 8 neighbouring columns of one token.
template <int kColumns>
__device__ __forceinline__ void store_tile(const Output& output, int token, int first_column, const float* d,
                                           float scale) {
  static_assert(kColumns % 32 == 0);
  const int quad_lane = static_cast<int>(threadIdx.x) & 3;
#pragma unroll
  for (int block = 0; block < kColumns / 8; block += 4) {
    const int column = first_column + 8 * (block + quad_lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = token + 8 * half;
      const bool exists = row < output.num_tokens && column < output.num_rows;
      float even[4], odd[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        even[i] = d[4 * (block + i) + 2 * half] * scale;
        odd[i] = d[4 * (block + i) + 2 * half + 1] * scale;
      }
      if (output.epilogue == Epilogue::kStore && !output.is_f32) {  // half the exchange
        float pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = pack_bf16(even[i], odd[i]);
        transpose_quad(pairs);
        auto* out = static_cast<__nv_bfloat16*>(output.out) + row * output.stride + column;
        if (exists) *reinterpret_cast<float4*>(out) = make_float4(pairs[0], pairs[1], pairs[2], pairs[3]);
        continue;
      }
      transpose_quad(even);
      transpose_quad(odd);
      if (!exists) continue;
      if (is_gated(output.epilogue)) {
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = gated(output.epilogue, even[i], odd[i]);
        store_values<4>(output, row, column / 2, values);
      } else {
        float values[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          values[2 * i] = even[i];
          values[2 * i + 1] = odd[i];
        }
        store_values<8>(output, row, column, values);
      }
    }
  }
}

}  // namespace thalweg::kernels::sm90
