#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "device/float_types.h"
#include "device/thread_pool.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/stored_group.h"

namespace thalweg::kernels {
namespace {

using device::DType;
using RowMaps = std::span<const std::span<const std::int32_t>>;

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kGroupsPerSuper = kSuperCols / kGroupCols;
constexpr std::int64_t kLineBytes = 64;  // 16 words of 4 codes
constexpr std::int64_t kBytesPerPackTask = std::int64_t{128} << 10;

std::optional<Coding> coding_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Coding::kF32;
    case DType::kF16:
      return Coding::kF16;
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF4E2M1:
      return Coding::kBF16;
    case DType::kQ4_0:
    case DType::kQ4_1:
      return Coding::kQ4ScaleMin;
    case DType::kQ4_K:
      return Coding::kQ4Super;
    case DType::kQ5_0:
    case DType::kQ8_0:
      return Coding::kQ8Scale;
    case DType::kQ5_1:
      return Coding::kQ8ScaleMin;
    case DType::kQ5_K:
      return Coding::kQ8Super;
    case DType::kQ6_K:
      return Coding::kQ8SuperScale16;
    default:
      return std::nullopt;
  }
}

WeightFormat format_of(Coding coding) {
  switch (coding) {
    case Coding::kF32:
      return WeightFormat::kF32;
    case Coding::kF16:
      return WeightFormat::kF16;
    case Coding::kBF16:
      return WeightFormat::kBF16;
    case Coding::kQ4ScaleMin:
    case Coding::kQ4Super:
      return WeightFormat::kQ4;
    default:
      return WeightFormat::kQ8;
  }
}

// Bytes that 16 rows take per superblock, per group for scales, per group for codes; of a float coding per column.
struct TileCost {
  std::int64_t per_super = 0;
  std::int64_t per_group = 0;
  std::int64_t codes_per_group = 0;
  std::int64_t per_column = 0;
};

TileCost tile_cost(Coding coding) {
  switch (coding) {
    case Coding::kF32:
      return {.per_column = 64};
    case Coding::kF16:
    case Coding::kBF16:
      return {.per_column = 32};
    case Coding::kQ4ScaleMin:
      return {.per_group = 64, .codes_per_group = 256};
    case Coding::kQ4Super:
      return {.per_super = 64, .per_group = 32, .codes_per_group = 256};
    case Coding::kQ8Scale:
      return {.per_group = 32, .codes_per_group = 512};
    case Coding::kQ8ScaleMin:
      return {.per_group = 64, .codes_per_group = 512};
    case Coding::kQ8Super:
      return {.per_super = 64, .per_group = 32, .codes_per_group = 512};
    case Coding::kQ8SuperScale16:
      return {.per_super = 32, .per_group = 32, .codes_per_group = 512};
  }
  return {};
}

PackedPart plan_part(Coding coding, std::int64_t first_row, std::int64_t num_rows, std::int64_t num_cols,
                     std::int64_t offset) {
  const TileCost cost = tile_cost(coding);
  const std::int64_t num_groups = num_cols / kGroupCols;
  PackedPart part{.coding = coding, .first_row = first_row, .num_rows = num_rows, .num_cols = num_cols};
  part.num_tiles = (num_rows + kTileRows - 1) / kTileRows;
  part.offset = offset;
  part.groups_offset = num_cols / kSuperCols * cost.per_super;
  const std::int64_t scales_end = part.groups_offset + num_groups * cost.per_group;
  part.codes_offset = (scales_end + kAlignment - 1) / kAlignment * kAlignment;
  part.tile_bytes = part.codes_offset + num_groups * cost.codes_per_group + num_cols * cost.per_column;
  part.tile_bytes = (part.tile_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return part;
}

// The stored rows that make up one packed part.
struct PartSource {
  std::span<const StoredMatrix> matrices;  // more than one: interleaved
  RowMaps row_maps;                        // entry i belongs to matrices[i]; may be shorter

  struct Row {
    const StoredMatrix& matrix;
    std::int64_t index;
  };
  Row locate(std::int64_t row) const {
    const std::size_t which = static_cast<std::size_t>(row) % matrices.size();
    const std::int64_t index = row / static_cast<std::int64_t>(matrices.size());
    if (which >= row_maps.size() || row_maps[which].empty()) return {matrices[which], index};
    return {matrices[which], row_maps[which][static_cast<std::size_t>(index)]};
  }
};

// ---- One row r of a tile. Writes of different rows do not meet. ----

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// Spreads 16 stored bytes, already in the nibble order of a packed group, over the group's 4 lines.
void put_nibble_words(std::byte* group_codes, std::int64_t r, const std::byte* stored) {
  for (std::int64_t j = 0; j < 4; ++j) std::memcpy(group_codes + j * kLineBytes + 4 * r, stored + 4 * j, 4);
}

void put_byte_words(std::byte* group_codes, std::int64_t r, const void* stored) {
  const auto* bytes = static_cast<const std::byte*>(stored);
  for (std::int64_t j = 0; j < 8; ++j) std::memcpy(group_codes + j * kLineBytes + 4 * r, bytes + 4 * j, 4);
}

void put_codes(Coding coding, std::byte* codes, std::int64_t g, std::int64_t r, const StoredGroup& group) {
  if (format_of(coding) == WeightFormat::kQ8) {
    put_byte_words(codes + g * 8 * kLineBytes, r, group.codes);
    return;
  }
  std::byte nibbles[16];
  for (int i = 0; i < 16; ++i) {
    nibbles[i] = static_cast<std::byte>(group.codes[i] | group.codes[i + 16] << 4);
  }
  put_nibble_words(codes + g * 4 * kLineBytes, r, nibbles);
}

void put_scales(const PackedPart& part, std::byte* tile, std::int64_t g, std::int64_t r, const StoredGroup& group) {
  const TileCost cost = tile_cost(part.coding);
  std::byte* scales = tile + part.groups_offset + g * cost.per_group;
  std::byte* super = tile + g / kGroupsPerSuper * cost.per_super;
  switch (part.coding) {
    case Coding::kQ4ScaleMin:
    case Coding::kQ8ScaleMin:
      put(scales + 2 * r, group.d);
      put(scales + 32 + 2 * r, group.m);
      break;
    case Coding::kQ8Scale:
      put(scales + 2 * r, group.d);
      break;
    case Coding::kQ4Super:
    case Coding::kQ8Super:
      put(super + 2 * r, group.d);
      put(super + 32 + 2 * r, group.m);
      put(scales + r, static_cast<std::uint8_t>(group.sub_scales[0]));
      put(scales + 16 + r, static_cast<std::uint8_t>(group.sub_min));
      break;
    case Coding::kQ8SuperScale16:
      put(super + 2 * r, group.d);
      put(scales + r, static_cast<std::int8_t>(group.sub_scales[0]));
      put(scales + 16 + r, static_cast<std::int8_t>(group.sub_scales[1]));
      break;
    default:
      CHECK(!"a quantised coding");
  }
}

void pack_quantised_row(const PackedPart& part, std::byte* tile, std::int64_t r, DType dtype, const std::byte* row) {
  const std::int64_t num_groups = part.num_cols / kGroupCols;
  std::byte* scales = tile + part.groups_offset;
  std::byte* codes = tile + part.codes_offset;
  if (dtype == DType::kQ4_1) {  // the lines of a group are the words of the stored blocks
    for (std::int64_t g = 0; g < num_groups; ++g, row += 20, scales += 64, codes += 4 * kLineBytes) {
      std::memcpy(scales + 2 * r, row, 2);
      std::memcpy(scales + 32 + 2 * r, row + 2, 2);
      put_nibble_words(codes, r, row + 4);
    }
    return;
  }
  if (dtype == DType::kQ8_0) {
    for (std::int64_t g = 0; g < num_groups; ++g, row += 34, scales += 32, codes += 8 * kLineBytes) {
      std::memcpy(scales + 2 * r, row, 2);
      put_byte_words(codes, r, row + 2);
    }
    return;
  }
  for (std::int64_t g = 0; g < num_groups; ++g) {
    const StoredGroup group = read_stored_group(dtype, row, g);
    put_scales(part, tile, g, r, group);
    put_codes(part.coding, codes, g, r, group);
  }
}

template <typename T>
void spread_row(std::byte* tile, std::int64_t r, const std::byte* row, std::int64_t num_cols) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  std::byte* to = tile + r * kSize;
  for (std::int64_t k = 0; k < num_cols; ++k) std::memcpy(to + k * kTileRows * kSize, row + k * kSize, sizeof(T));
}

void pack_float_row(const PackedPart& part, std::byte* tile, std::int64_t r, const PartSource::Row& from) {
  const StoredMatrix& matrix = from.matrix;
  const std::byte* row = matrix.data + from.index * device::row_bytes(matrix.dtype, part.num_cols);
  if (part.coding == Coding::kF32 && matrix.dtype == DType::kF32) {
    spread_row<std::uint32_t>(tile, r, row, part.num_cols);
    return;
  }
  if ((part.coding == Coding::kF16 && matrix.dtype == DType::kF16) ||
      (part.coding == Coding::kBF16 && matrix.dtype == DType::kBF16)) {
    spread_row<std::uint16_t>(tile, r, row, part.num_cols);
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(part.num_cols));
  dequantize_rows(matrix, from.index, 1, values.data());
  if (part.coding == Coding::kF32) {
    spread_row<std::uint32_t>(tile, r, reinterpret_cast<const std::byte*>(values.data()), part.num_cols);
    return;
  }
  CHECK(part.coding == Coding::kBF16);  // FP8 or FP4 with their scales
  for (std::int64_t k = 0; k < part.num_cols; ++k) {
    put(tile + (k * kTileRows + r) * 2, device::bf16_from_float(values[static_cast<std::size_t>(k)]));
  }
}

void pack_tile(const PackedPart& part, const PartSource& source, std::int64_t tile_index, std::byte* tile) {
  const std::int64_t first = tile_index * kTileRows;
  const std::int64_t last = std::min(first + kTileRows, part.num_rows);
  const bool is_float = part.coding <= Coding::kBF16;
  for (std::int64_t row = first; row < last; ++row) {
    const PartSource::Row from = source.locate(row);
    if (is_float) {
      pack_float_row(part, tile, row - first, from);
    } else {
      const StoredMatrix& matrix = from.matrix;
      pack_quantised_row(part, tile, row - first, matrix.dtype,
                         matrix.data + from.index * device::row_bytes(matrix.dtype, matrix.num_cols));
    }
  }
}

// ---- What a caller may get wrong. ----

Status check_scales(const StoredMatrix& matrix) {
  const BlockScales& scales = matrix.scales;
  if (scales.data == nullptr || scales.block_rows < 1 || scales.block_cols < 1) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("linear weight of type {} comes without its block scales",
                                                         device::dtype_name(matrix.dtype)));
  }
  if (scales.dtype != DType::kF32 && scales.dtype != DType::kF8E8M0) {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("block scales of type {} are not supported, needs F32 or F8_E8M0",
                            device::dtype_name(scales.dtype)));
  }
  return {};
}

Status check_part(const StoredMatrix& matrix, std::int64_t num_cols) {
  const auto name = device::dtype_name(matrix.dtype);
  if (!coding_of(matrix.dtype)) {
    return fail(ErrorCode::kUnimplemented, fmt::format("linear weight of type {} is not supported", name));
  }
  if (matrix.num_rows <= 0 || matrix.num_cols <= 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("linear weight has shape [{}, {}], needs at least one row and one column", matrix.num_rows,
                            matrix.num_cols));
  }
  if (matrix.num_cols != num_cols) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("fused linear weights have {} and {} columns, need equal", num_cols, matrix.num_cols));
  }
  const std::int64_t block = device::block_layout(matrix.dtype).num_elements;
  if (matrix.num_cols % block != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("linear weight of type {} has {} columns, needs a multiple of {}", name, matrix.num_cols, block));
  }
  if (matrix.dtype == DType::kF8E4M3 || matrix.dtype == DType::kF4E2M1) return check_scales(matrix);
  return {};
}

Status check_row_map(std::span<const std::int32_t> map, const StoredMatrix& matrix) {
  if (map.empty()) return {};
  if (static_cast<std::int64_t>(map.size()) != matrix.num_rows) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("row map has {} entries for a weight of {} rows", map.size(), matrix.num_rows));
  }
  for (const std::int32_t row : map) {
    if (row < 0 || row >= matrix.num_rows) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("row map names row {} of a weight of {} rows", row, matrix.num_rows));
    }
  }
  return {};
}

Status check_all(std::span<const StoredMatrix> parts, RowOrder order, RowMaps row_maps) {
  if (parts.empty()) return fail(ErrorCode::kInvalidArgument, "a linear weight needs at least one matrix");
  if (row_maps.size() > parts.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} row maps for {} fused linear weights", row_maps.size(), parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (Status status = check_part(parts[i], parts[0].num_cols); !status) return status;
    if (order == RowOrder::kInterleave && parts[i].num_rows != parts[0].num_rows) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("interleaved linear weights have {} and {} rows, need equal",
                                                           parts[0].num_rows, parts[i].num_rows));
    }
    if (i >= row_maps.size()) continue;
    if (Status status = check_row_map(row_maps[i], parts[i]); !status) return status;
  }
  return {};
}

struct Plan {
  std::vector<PackedPart> parts;
  std::vector<PartSource> sources;  // one per part
  std::int64_t num_bytes = 0;
  std::int64_t num_rows = 0;

  void add(Coding coding, std::int64_t rows, std::int64_t cols, PartSource source) {
    parts.push_back(plan_part(coding, num_rows, rows, cols, num_bytes));
    sources.push_back(source);
    num_bytes += parts.back().num_tiles * parts.back().tile_bytes;
    num_rows += rows;
  }
};

Plan make_plan(std::span<const StoredMatrix> matrices, RowOrder order, RowMaps row_maps) {
  Plan plan;
  const std::int64_t num_cols = matrices[0].num_cols;
  if (order == RowOrder::kInterleave) {
    Coding coding = *coding_of(matrices[0].dtype);
    for (const StoredMatrix& matrix : matrices) {
      if (*coding_of(matrix.dtype) != coding) coding = Coding::kF32;
    }
    const auto count = static_cast<std::int64_t>(matrices.size());
    plan.add(coding, matrices[0].num_rows * count, num_cols, {matrices, row_maps});
    return plan;
  }
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const RowMaps map = i < row_maps.size() ? row_maps.subspan(i, 1) : RowMaps();
    plan.add(*coding_of(matrices[i].dtype), matrices[i].num_rows, num_cols, {matrices.subspan(i, 1), map});
  }
  return plan;
}

}  // namespace

Result<LinearWeight> LinearWeight::pack(device::Stream& stream, std::span<const StoredMatrix> parts, RowOrder order,
                                        RowMaps row_maps) {
  CHECK(stream.threads != nullptr);
  if (Status status = check_all(parts, order, row_maps); !status) return std::unexpected(status.error());
  Plan plan = make_plan(parts, order, row_maps);

  LinearWeight weight;
  weight.num_rows_ = plan.num_rows;
  weight.num_cols_ = parts[0].num_cols;
  weight.format_ = format_of(plan.parts[0].coding);
  weight.storage_ = stream.threads->take_buffer(static_cast<std::size_t>(plan.num_bytes));
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const PackedPart& part = plan.parts[i];
    const PartSource& source = plan.sources[i];
    std::byte* tiles = weight.storage_.data() + part.offset;
    const std::int64_t per_task = std::max<std::int64_t>(1, kBytesPerPackTask / part.tile_bytes);
    stream.threads->parallel_for((part.num_tiles + per_task - 1) / per_task, [&](std::int64_t task, int) {
      const std::int64_t last = std::min((task + 1) * per_task, part.num_tiles);
      for (std::int64_t tile = task * per_task; tile < last; ++tile) {
        pack_tile(part, source, tile, tiles + tile * part.tile_bytes);
      }
    });
  }
  weight.parts_ = std::move(plan.parts);
  return weight;
}

}  // namespace thalweg::kernels
