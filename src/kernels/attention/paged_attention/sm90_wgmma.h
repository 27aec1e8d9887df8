// The matrix products of attention beside those of device/cuda/ptx.h: tiles whose groups of eight tokens are further
// apart than 1,024 bytes, and values, which are summed over tokens and so are read across their rows.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.h"

namespace thalweg::kernels::attention {

/// Of a swizzled tile [tokens / 8][dims / 64][8][64] of bf16. Read across its rows, 64 dimensions are followed by the
/// next 1,024 bytes on.
__device__ inline std::uint64_t attention_descriptor(std::uint32_t shared, std::uint32_t bytes_per_8_tokens) {
  constexpr std::uint64_t kConstant = std::uint64_t{1} << 62 | std::uint64_t{1024 / 16} << 16;
  return kConstant | std::uint64_t{bytes_per_8_tokens / 16} << 32 | ((shared & 0x3FFFFU) >> 4);
}

/// d[64, N] += a[64, 16] * b[16, N], fp32: `a` in registers as of ptx::RegisterProduct, N dimensions of 16 tokens'
/// values.
template <int kN>
struct ValuesProduct;

#define THALWEG_VALUES_PRODUCT(n, regs, floats, a, b)                                                 \
  template <>                                                                                         \
  struct ValuesProduct<n> {                                                                           \
    __device__ static __forceinline__ void run(float* d, const std::uint32_t* ra, std::uint64_t db) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" regs "}, {" a "}, " b \
                   ", 1, 1, 1, 1;\n"                                                                  \
                   : floats                                                                           \
                   : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "l"(db));                        \
    }                                                                                                 \
  };

THALWEG_VALUES_PRODUCT(64, THALWEG_R32, THALWEG_F32(d, 0), "%32,%33,%34,%35", "%36")
THALWEG_VALUES_PRODUCT(128, THALWEG_R64, THALWEG_F64(d, 0), "%64,%65,%66,%67", "%68")
THALWEG_VALUES_PRODUCT(256, THALWEG_R128, THALWEG_F128(d, 0), "%128,%129,%130,%131", "%132")

#undef THALWEG_VALUES_PRODUCT

}  // namespace thalweg::kernels::attention
