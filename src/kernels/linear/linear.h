// Matrix product with packed weights: out = x * W^T (+ bias).
//
// Numeric contract. Float weights (f32, f16, bf16): products and sums in fp32, in an order fixed by
// the row length alone. Quantised weights: activations are quantised to int8 per token and per group of
// 32 (scale fp32, round to nearest even), integer dot products are exact, groups are added in fp32 in
// rising order. The `reference` version follows the same quantisation, so versions differ by fp32
// rounding only. A token's result is bit-identical for every batch composition and chunking on one
// machine: GEMV and GEMM add in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/buffer.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "thalweg/error.h"

namespace thalweg::kernels {

/// A matrix as it lies in a file: [num_rows, num_cols], rows contiguous. Not owned.
/// FP8 has one fp32 scale per 128 x 128 block in `block_scales`, [ceil(rows/128), ceil(cols/128)].
struct StoredMatrix {
  device::DType dtype = device::DType::kF32;
  const std::byte* data = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  const float* block_scales = nullptr;
};

/// How weights are kept after loading. Chosen from the stored type: floats stay as they are, types of at
/// most 4 bits become kQ4, the others kQ8. FP8 becomes bf16.
enum class WeightFormat : std::uint8_t { kF32, kF16, kBF16, kQ4, kQ8 };

/// Writes rows [first_row, first_row + num_rows) as fp32, [num_rows, num_cols].
void dequantize_rows(const StoredMatrix& matrix, std::int64_t first_row, std::int64_t num_rows, float* out);

enum class RowOrder : std::uint8_t {
  kConcatenate,  // parts one after the other
  kInterleave,   // row i of part 0, row i of part 1, ...: gate and up of a gated MLP
};

/// Weights in the layout of the CPU kernels; immutable after `pack`.
class LinearWeight {
 public:
  LinearWeight() = default;

  /// Packs `parts` (equal num_cols) into one matrix. `row_map`, if not empty, gives for each row of
  /// a part's result the row of the part to take (rope reordering) and has as many entries as the first part
  /// has rows; it applies to part 0 .. num_mapped_parts-1 through `row_maps[i]`, empty spans are identity.
  /// Errors: kInvalidArgument for shapes that do not fit, kUnimplemented for a dtype that is no weight.
  static Result<LinearWeight> pack(device::Stream& stream, std::span<const StoredMatrix> parts,
                                   RowOrder order = RowOrder::kConcatenate,
                                   std::span<const std::span<const std::int32_t>> row_maps = {});

  std::int64_t num_rows() const { return num_rows_; }  // output features
  std::int64_t num_cols() const { return num_cols_; }  // input features
  WeightFormat format() const { return format_; }
  std::size_t num_bytes() const { return storage_.size(); }
  const device::Buffer& storage() const { return storage_; }

  /// One row as fp32, exactly what the kernels multiply with.
  void read_row(std::int64_t row, float* out) const;

 private:
  std::int64_t num_rows_ = 0;
  std::int64_t num_cols_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  device::Buffer storage_;
};

enum class Epilogue : std::uint8_t {
  kStore,       // out[t, n] = y
  kAccumulate,  // out[t, n] += y, the residual stream
  kSiluMul,     // rows interleaved gate, up: out[t, n/2] = silu(gate) * up
  kGeluMul,     // the same with tanh-approximated gelu
};

struct LinearParams {
  const float* x = nullptr;  // [num_tokens, num_cols], row stride x_stride
  std::int64_t x_stride = 0;
  std::int64_t num_tokens = 0;  // 0 does nothing
  const LinearWeight* weight = nullptr;
  const float* bias = nullptr;  // [num_rows] or null
  float* out = nullptr;         // [num_tokens, num_rows], or num_rows / 2 for the gated epilogues
  std::int64_t out_stride = 0;
  Epilogue epilogue = Epilogue::kStore;
};

/// Scratch is owned by the workspace of the caller's thread pool; sized on demand, kept.
void linear(device::Stream& stream, const LinearParams& params);

/// out[i] = row ids[i] of the weight, times `scale`; [num_tokens, num_cols].
void embedding(device::Stream& stream, const LinearWeight& table, std::span<const std::int32_t> ids, float scale,
               float* out);

}  // namespace thalweg::kernels
