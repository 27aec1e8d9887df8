// Matrix product with packed weights: out = x * W^T (+ bias).
//
// Numeric contract.
// - Float weights (f32, f16, bf16): y = fma(w[k], x[k], y) in fp32 for k = 0, 1, ..., starting from 0.
// - Quantised weights: activations are quantised to int8 per token and per group of 32 columns: scale = max|x| / 127
//   in fp32, code = round to nearest even of x * (127 / max|x|); a group whose max|x| is below 1e-30 counts as zero, a
//   group with a NaN or an infinity makes the token's results NaN. Integer dot products are exact. Groups
//   are added in fp32 in rising order: y = fma(dot, activation_scale * weight_scale, y), then, for formats with a
//   minimum, y = fma(weight_min, activation_scale * sum(codes), y).
// - Then the bias is added, then the epilogue applied. Its exponential has a relative error below 3e-7.
// Nothing in this depends on the tokens beside it, on tiling, on threads or on the instruction set: a token's
// result is bit-identical for every batch composition and chunking, and all versions agree bit for bit.
// Padding of packed weights is zero and never stored to `out`; unused bytes of out's rows are not touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "kernels/linear/epilogue.h"
#include "kernels/linear/packed.h"
#include "thalweg/error.h"

namespace thalweg::kernels {

/// Scales of a matrix of FP8 or FP4 codes, one per block of elements: [ceil(num_rows / block_rows), ceil(num_cols /
/// block_cols)], the last blocks may be cut. Not owned.
struct BlockScales {
  device::DType dtype = device::DType::kF32;  // or kF8E8M0, the bytes of the file
  const std::byte* data = nullptr;
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
};

/// A matrix as it lies in a file: [num_rows, num_cols], rows contiguous. Not owned.
struct StoredMatrix {
  device::DType dtype = device::DType::kF32;
  const std::byte* data = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  BlockScales scales = {};  // of kF8E4M3 and kF4E2M1, by which codes are multiplied
};

/// How weights are kept after loading. Chosen from the stored type: floats stay as they are, types of at
/// most 4 bits become kQ4, the others kQ8. FP8 and FP4
/// become bf16, which is exact where scales are powers of two.
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

  /// Packs `parts` (equal num_cols; equal num_rows too when interleaved) into one matrix, in parallel.
  ///
  /// `row_maps[i]` belongs to parts[i]: row r of that part's result is row row_maps[i][r] of its file (rope
  /// reordering). An empty map, or a part beyond the end of `row_maps`, keeps the order of the file; any
  /// other map has one entry per row of its part.
  ///
  /// Concatenated parts may differ in dtype, each keeps its format. Interleaved parts that do not share a format
  /// become kF32. The parts' memory is not needed afterwards.
  /// Errors: kInvalidArgument for shapes or maps that do not fit, kUnimplemented for a dtype that is no weight.
  static Result<LinearWeight> pack(device::Stream& stream, std::span<const StoredMatrix> parts,
                                   RowOrder order = RowOrder::kConcatenate,
                                   std::span<const std::span<const std::int32_t>> row_maps = {});

  std::int64_t num_rows() const { return num_rows_; }  // output features
  std::int64_t num_cols() const { return num_cols_; }  // input features
  WeightFormat format() const { return format_; }      // of the first part where parts differ
  std::size_t num_bytes() const { return storage_.size(); }
  const device::Buffer& storage() const { return storage_; }
  std::span<const PackedPart> parts() const { return parts_; }  // how the storage is divided, rows ascending

  /// One row as fp32, exactly what the kernels multiply with.
  void read_row(std::int64_t row, float* out) const;

 private:
  std::int64_t num_rows_ = 0;
  std::int64_t num_cols_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  device::Buffer storage_;
  std::vector<PackedPart> parts_;
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

/// `out` must not overlap `x`. The gated epilogues need an even num_rows. Scratch comes from ScratchSlot::kLinear of
/// the stream's thread pool. Needs stream.threads.
void linear(device::Stream& stream, const LinearParams& params);

/// out[i] = row ids[i] of the weight, times `scale`; [ids.size(), num_cols]. Ids must be rows of the table.
void embedding(device::Stream& stream, const LinearWeight& table, std::span<const std::int32_t> ids, float scale,
               float* out);

}  // namespace thalweg::kernels
