#include "kernels/linear/packed_row.h"

#include <cstring>

#include "base/check.h"
#include "device/float_types.h"
#include "kernels/linear/linear.h"

namespace thalweg::kernels {
namespace {

template <typename T>
T at(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<std::int64_t>(sizeof(T)), sizeof(value));
  return value;
}

float f16_at(const std::byte* from, std::int64_t index) {
  return device::float_from_f16(at<std::uint16_t>(from, index));
}

bool is_4_bit(Coding coding) { return coding == Coding::kQ4ScaleMin || coding == Coding::kQ4Super; }

void read_codes(const PackedPart& part, const std::byte* tile, std::int64_t r, std::int64_t g, int* codes) {
  if (!is_4_bit(part.coding)) {
    const std::byte* group = tile + part.codes_offset + g * 512;
    for (std::int64_t i = 0; i < kGroupCols; ++i) codes[i] = at<std::int8_t>(group + i / 4 * 64 + r * 4, i % 4);
    return;
  }
  const std::byte* group = tile + part.codes_offset + g * 256;
  for (std::int64_t i = 0; i < 16; ++i) {
    const std::uint8_t pair = at<std::uint8_t>(group + i / 4 * 64 + r * 4, i % 4);
    codes[i] = pair & 15;
    codes[i + 16] = pair >> 4;
  }
}

void read_scales(const PackedPart& part, const std::byte* tile, std::int64_t r, std::int64_t g, PackedGroup& group) {
  const std::byte* scales = tile + part.groups_offset;
  const std::int64_t super = g / (kSuperCols / kGroupCols);
  group.sub_scales[0] = group.sub_scales[1] = 1;
  group.min = 0.0F;
  switch (part.coding) {
    case Coding::kQ4ScaleMin:
    case Coding::kQ8ScaleMin:
      group.scale = f16_at(scales + g * 64, r);
      group.min = f16_at(scales + g * 64 + 32, r);
      return;
    case Coding::kQ8Scale:
      group.scale = f16_at(scales + g * 32, r);
      return;
    case Coding::kQ4Super:
    case Coding::kQ8Super:
      group.scale = f16_at(tile + super * 64, r) * static_cast<float>(at<std::uint8_t>(scales + g * 32, r));
      group.min = f16_at(tile + super * 64 + 32, r) * static_cast<float>(at<std::uint8_t>(scales + g * 32 + 16, r));
      return;
    case Coding::kQ8SuperScale16:
      group.scale = f16_at(tile + super * 32, r);
      group.sub_scales[0] = at<std::int8_t>(scales + g * 32, r);
      group.sub_scales[1] = at<std::int8_t>(scales + g * 32 + 16, r);
      return;
    default:
      CHECK(!"a quantised coding");
  }
}

}  // namespace

bool is_float(Coding coding) { return coding <= Coding::kBF16; }

bool has_min(Coding coding) {
  return coding == Coding::kQ4ScaleMin || coding == Coding::kQ8ScaleMin || coding == Coding::kQ4Super ||
         coding == Coding::kQ8Super;
}

PackedGroup read_packed_group(const PackedPart& part, const std::byte* tiles, std::int64_t row, std::int64_t group) {
  const std::byte* tile = tiles + row / kTileRows * part.tile_bytes;
  PackedGroup result;
  read_codes(part, tile, row % kTileRows, group, result.codes);
  read_scales(part, tile, row % kTileRows, group, result);
  return result;
}

float read_packed_float(const PackedPart& part, const std::byte* tiles, std::int64_t row, std::int64_t col) {
  const std::byte* tile = tiles + row / kTileRows * part.tile_bytes;
  const std::int64_t index = col * kTileRows + row % kTileRows;
  switch (part.coding) {
    case Coding::kF32:
      return at<float>(tile, index);
    case Coding::kF16:
      return f16_at(tile, index);
    default:
      return device::float_from_bf16(at<std::uint16_t>(tile, index));
  }
}

void LinearWeight::read_row(std::int64_t row, float* out) const {
  CHECK_GE(row, 0);
  CHECK_LT(row, num_rows_);
  const PackedPart* part = parts_.data();
  while (row >= part->first_row + part->num_rows) ++part;
  row -= part->first_row;
  const std::byte* tiles = storage_.data() + part->offset;
  if (is_float(part->coding)) {
    for (std::int64_t k = 0; k < num_cols_; ++k) out[k] = read_packed_float(*part, tiles, row, k);
    return;
  }
  for (std::int64_t g = 0; g < num_cols_ / kGroupCols; ++g) {
    const PackedGroup group = read_packed_group(*part, tiles, row, g);
    for (std::int64_t i = 0; i < kGroupCols; ++i) {
      const float scale = group.scale * static_cast<float>(group.sub_scales[i / 16]);
      out[g * kGroupCols + i] = scale * static_cast<float>(group.codes[i]) + group.min;
    }
  }
}

}  // namespace thalweg::kernels
