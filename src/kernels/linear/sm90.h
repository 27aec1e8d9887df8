// Matrix products on Hopper (compute capability 9.0): out = x * W^T, fp32 sums.
//
// Numeric contract.
// - kBF16: products of bf16 are added to one fp32 sum in steps of 16 columns, k rising, as the tensor core adds.
// - kQ4: a weight is bf16(q * scale + min), rounded once; then as kBF16.
// - kFp8: steps of 32 columns of e4m3, then times x_scale * weight_scale. The tensor core keeps about 13 bits of such a
//   sum: an error near 1e-3, against 3e-2 of rounding to e4m3.
// - kFp8Blocks: a new sum for each 128 columns, y = fma(sum, x_scale * weight_scale of the block, y).
// - Then the epilogue, in fp32.
// The order is fixed by the columns alone: a token's result is bit-identical in every batch, whichever kernel and tile
// is chosen. Nothing outside of the num_tokens rows of `out` and their num_rows (or num_rows / 2) columns is written.
#pragma once

#include <cstdint>

#include "device/cuda/table.h"
#include "kernels/linear/epilogue.h"

namespace thalweg::kernels {

enum class LinearSm90Weights : std::uint8_t {
  kBF16,       // [num_rows, num_cols] bf16
  kFp8,        // [num_rows, num_cols] e4m3, weight_scale[1], x e4m3, x_scale[1]
  kFp8Blocks,  // [num_rows, num_cols] e4m3, weight_scale[ceil(num_rows / 128), num_cols / 128], x e4m3,
               // x_scale[num_cols / 128, x_scale_stride], the stride a multiple of 4
  kQ4,         // [num_rows / 8, num_cols / 64] of Q4UnitSm90
};

/// 8 rows x 64 columns of 4-bit weights in the order in which the lanes of a warp hold an operand of a product. Lane
/// 4 r + c has row r; half h of its codes is columns 32 h ... 32 h + 31, of which nibble i (i = 0 to 3) is column 32 h
/// + 8 i + 2 c and nibble i + 4 the next one.
struct alignas(16) Q4UnitSm90 {
  std::uint32_t codes[32][2];        // [lane][half]
  std::uint16_t scale_min[8][2][2];  // [row][half]: bf16 scale, bf16 min
};
static_assert(sizeof(Q4UnitSm90) == 320);

/// Which kernel makes a product. No choice changes a result, so all but benches and tests leave it to the library.
enum class LinearSm90Kernel : std::uint8_t {
  kChosen,
  kStream,  // up to 64 tokens
  kTile64,  // blocks of 128 tokens and so many rows of W
  kTile128,
  kTile256,
};

struct LinearSm90Params {
  LinearSm90Weights weights = LinearSm90Weights::kBF16;
  const void* x = nullptr;  // [num_tokens, num_cols] bf16 or e4m3; 16-byte rows
  std::int64_t x_stride = 0;
  const float* x_scale = nullptr;
  std::int64_t x_scale_stride = 0;
  std::int64_t num_tokens = 0;  // 0 does nothing
  const void* weight = nullptr;
  const float* weight_scale = nullptr;
  std::int64_t num_rows = 0;  // output features, a multiple of 8
  std::int64_t num_cols = 0;  // input features, a multiple of 64, of 128 for fp8
  void* out = nullptr;        // bf16 or fp32; 16-byte rows
  std::int64_t out_stride = 0;
  bool out_is_f32 = false;
  Epilogue epilogue = Epilogue::kStore;
  /// [num_rows, num_cols] bf16, for kQ4 with more tokens than the streaming kernel takes.
  void* scratch = nullptr;
  std::int32_t num_multiprocessors = 0;
  /// The kernel may start while the one before it ends; that one must not write `weight`.
  bool starts_early = false;
  LinearSm90Kernel kernel = LinearSm90Kernel::kChosen;
  std::int32_t ring_bytes = 0;  // of kStream; 0: chosen
};

using LinearSm90 = device::CudaLaunch<LinearSm90Params>;
LinearSm90 linear_sm90;

}  // namespace thalweg::kernels
