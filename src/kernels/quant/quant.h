// Micro-scaled rows: FP8 and FP4 codes with one scale per group of channels, as activations are quantised before a
// product and as cache entries are stored (DeepSeek-V4.1 specification, sections 0.3 and 0.4).
//
// Numeric contract. Codes and scales are those of the specification bit for bit, on every machine: divisions are
// correctly rounded, rounding is to nearest even, and decoding is exact in fp32. A group that holds a NaN or an
// infinity decodes to NaN for formats that have one and to their largest values otherwise; it never reaches another
// group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"

namespace thalweg::kernels {

enum class QuantFormat : std::uint8_t {
  kF8Block32,  // E4M3 codes, a UE8M0 scale per 32: activations ("A8") and window rows
  kF4Block32,  // E2M1 codes, a UE8M0 scale per 32: index queries and keys ("FP4-U")
  kF4Block16,  // E2M1 codes, an E4M3 scale per 16: compressed latents ("FP4-N")
  // Plain floats without scales, for rows of the same kind in caches that are not quantised.
  kF32,
  kF16,
  kBF16,
};

/// Channels that share a scale; 1 for plain floats.
std::int32_t quant_group(QuantFormat format);
/// Bytes of one stored row: all codes (FP4: two per byte, the low nibble is the even channel), then all scales.
/// Precondition: whole groups.
std::int64_t quant_row_bytes(QuantFormat format, std::int64_t num_cols);

/// Stores a row, x [num_cols].
void quantize_row(QuantFormat format, const float* x, std::int64_t num_cols, std::byte* out);
/// Its values, [num_cols].
void dequantize_row(QuantFormat format, const std::byte* row, std::int64_t num_cols, float* out);
/// What storing and reading would make of it; out may be x.
void fake_quantize_row(QuantFormat format, const float* x, std::int64_t num_cols, float* out);

/// Rows in parallel: x [num_rows, num_cols] with row stride x_stride in elements; out may be x (then the same stride).
void fake_quantize(device::Stream& stream, QuantFormat format, std::int64_t num_rows, std::int64_t num_cols,
                   const float* x, std::int64_t x_stride, float* out, std::int64_t out_stride);

/// Rounds `count` values to bf16, in place.
void round_bf16(device::Stream& stream, float* x, std::int64_t count);

}  // namespace thalweg::kernels
