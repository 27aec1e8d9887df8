#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/float_types.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/stored_group.h"

namespace thalweg::kernels {
namespace {

using device::DType;

template <typename T, typename Convert>
void convert_row(const std::byte* row, std::int64_t num_cols, float* out, Convert&& convert) {
  for (std::int64_t k = 0; k < num_cols; ++k) {
    T code;
    std::memcpy(&code, row + k * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    out[k] = convert(code);
  }
}

float scale_at(const BlockScales& scales, std::int64_t index) {
  if (scales.dtype == DType::kF8E8M0) {
    return device::float_from_f8_e8m0(std::to_integer<std::uint8_t>(scales.data[index]));
  }
  float scale = 0.0F;
  std::memcpy(&scale, scales.data + index * static_cast<std::int64_t>(sizeof(scale)), sizeof(scale));
  return scale;
}

// out[k] = value(k) times the scale of its block.
template <typename Value>
void convert_scaled_row(const StoredMatrix& matrix, std::int64_t row, float* out, Value&& value) {
  const BlockScales& scales = matrix.scales;
  CHECK(scales.data != nullptr);
  const std::int64_t blocks_per_row = (matrix.num_cols + scales.block_cols - 1) / scales.block_cols;
  for (std::int64_t block = 0; block < blocks_per_row; ++block) {
    const float scale = scale_at(scales, row / scales.block_rows * blocks_per_row + block);
    const std::int64_t end = std::min(matrix.num_cols, (block + 1) * scales.block_cols);
    for (std::int64_t k = block * scales.block_cols; k < end; ++k) out[k] = value(k) * scale;
  }
}

void convert_block_row(DType dtype, const std::byte* row, std::int64_t num_cols, float* out) {
  for (std::int64_t g = 0; g < num_cols / kGroupCols; ++g) {
    const StoredGroup group = read_stored_group(dtype, row, g);
    const float d = device::float_from_f16(group.d);
    const float min = device::float_from_f16(group.m) * static_cast<float>(group.sub_min);
    for (std::int64_t i = 0; i < kGroupCols; ++i) {
      const float scale = d * static_cast<float>(group.sub_scales[i / 16]);
      out[g * kGroupCols + i] = scale * static_cast<float>(group.codes[i]) + min;
    }
  }
}

}  // namespace

void dequantize_rows(const StoredMatrix& matrix, std::int64_t first_row, std::int64_t num_rows, float* out) {
  const std::int64_t row_bytes = device::row_bytes(matrix.dtype, matrix.num_cols);
  for (std::int64_t row = first_row; row < first_row + num_rows; ++row, out += matrix.num_cols) {
    const std::byte* from = matrix.data + row * row_bytes;
    switch (matrix.dtype) {
      case DType::kF32:
        std::memcpy(out, from, static_cast<std::size_t>(row_bytes));
        break;
      case DType::kF16:
        convert_row<std::uint16_t>(from, matrix.num_cols, out, device::float_from_f16);
        break;
      case DType::kBF16:
        convert_row<std::uint16_t>(from, matrix.num_cols, out, device::float_from_bf16);
        break;
      case DType::kF8E4M3:
        convert_scaled_row(matrix, row, out, [from](std::int64_t k) {
          return device::float_from_f8_e4m3(std::to_integer<std::uint8_t>(from[k]));
        });
        break;
      case DType::kF4E2M1:
        convert_scaled_row(matrix, row, out, [from](std::int64_t k) {
          const auto pair = std::to_integer<std::uint8_t>(from[k / 2]);
          return device::float_from_f4_e2m1(k % 2 == 0 ? pair & 15 : pair >> 4);
        });
        break;
      default:
        convert_block_row(matrix.dtype, from, matrix.num_cols, out);
    }
  }
}

}  // namespace thalweg::kernels
