#include "kernels/linear/stored_group.h"

#include <cstring>

#include "base/check.h"
#include "device/float_types.h"

namespace thalweg::kernels {
namespace {

using device::DType;

constexpr std::uint16_t kF16Sign = 0x8000;

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::uint8_t byte_at(const std::byte* from, std::int64_t index) { return std::to_integer<std::uint8_t>(from[index]); }

StoredGroup plain_group(std::uint16_t d, std::uint16_t m) {
  StoredGroup group{};
  group.d = d;
  group.m = m;
  group.sub_scales[0] = group.sub_scales[1] = 1;
  group.sub_min = 1;
  return group;
}

// 16 bytes: low halves are columns 0-15, high halves columns 16-31.
void read_nibbles(const std::byte* from, StoredGroup& group) {
  for (int i = 0; i < 16; ++i) {
    const std::uint8_t pair = byte_at(from, i);
    group.codes[i] = static_cast<std::int8_t>(pair & 15);
    group.codes[i + 16] = static_cast<std::int8_t>(pair >> 4);
  }
}

// The fifth bits of 32 columns, minus `bias`.
void add_fifth_bits(std::uint32_t bits, int bias, StoredGroup& group) {
  for (int i = 0; i < 32; ++i) {
    group.codes[i] = static_cast<std::int8_t>(group.codes[i] + static_cast<int>((bits >> i & 1U) << 4) - bias);
  }
}

StoredGroup read_q4_0(const std::byte* block) {
  const auto d = load<std::uint16_t>(block);
  StoredGroup group = plain_group(d, device::f16_from_float(-8.0F * device::float_from_f16(d)));
  read_nibbles(block + 2, group);
  return group;
}

StoredGroup read_q4_1(const std::byte* block) {
  StoredGroup group = plain_group(load<std::uint16_t>(block), load<std::uint16_t>(block + 2));
  read_nibbles(block + 4, group);
  return group;
}

StoredGroup read_q5_0(const std::byte* block) {
  StoredGroup group = plain_group(load<std::uint16_t>(block), 0);
  read_nibbles(block + 6, group);
  add_fifth_bits(load<std::uint32_t>(block + 2), 16, group);
  return group;
}

StoredGroup read_q5_1(const std::byte* block) {
  StoredGroup group = plain_group(load<std::uint16_t>(block), load<std::uint16_t>(block + 2));
  read_nibbles(block + 8, group);
  add_fifth_bits(load<std::uint32_t>(block + 4), 0, group);
  return group;
}

StoredGroup read_q8_0(const std::byte* block) {
  StoredGroup group = plain_group(load<std::uint16_t>(block), 0);
  std::memcpy(group.codes, block + 2, sizeof(group.codes));
  return group;
}

// The head that Q4_K and Q5_K share: d, dmin, then eight 6-bit scales and eight 6-bit minima in 12 bytes.
StoredGroup read_k_scales(const std::byte* block, int sub) {
  StoredGroup group{};
  group.d = load<std::uint16_t>(block);
  group.m = static_cast<std::uint16_t>(load<std::uint16_t>(block + 2) ^ kF16Sign);  // minima are subtracted
  const std::byte* packed = block + 4;
  int scale = 0;
  int min = 0;
  if (sub < 4) {
    scale = byte_at(packed, sub) & 63;
    min = byte_at(packed, sub + 4) & 63;
  } else {
    scale = (byte_at(packed, sub + 4) & 15) | (byte_at(packed, sub - 4) >> 6) << 4;
    min = (byte_at(packed, sub + 4) >> 4) | (byte_at(packed, sub) >> 6) << 4;
  }
  group.sub_scales[0] = group.sub_scales[1] = static_cast<std::int16_t>(scale);
  group.sub_min = static_cast<std::int16_t>(min);
  return group;
}

// Bytes are shared by two neighbouring groups: the even one has the low, the odd one the high halves.
void read_k_nibbles(const std::byte* from, int sub, StoredGroup& group) {
  const std::byte* bytes = from + 32 * (sub / 2);
  const int shift = 4 * (sub % 2);
  for (int i = 0; i < 32; ++i) group.codes[i] = static_cast<std::int8_t>(byte_at(bytes, i) >> shift & 15);
}

StoredGroup read_q4_k(const std::byte* block, int sub) {
  StoredGroup group = read_k_scales(block, sub);
  read_k_nibbles(block + 16, sub, group);
  return group;
}

StoredGroup read_q5_k(const std::byte* block, int sub) {
  StoredGroup group = read_k_scales(block, sub);
  read_k_nibbles(block + 48, sub, group);
  for (int i = 0; i < 32; ++i) {
    group.codes[i] = static_cast<std::int8_t>(group.codes[i] + ((byte_at(block + 16, i) >> sub & 1) << 4));
  }
  return group;
}

// Two halves of 128 columns; in each, 64 bytes of low and 32 bytes of high bits serve four groups.
StoredGroup read_q6_k(const std::byte* block, int sub) {
  const int half = sub / 4;
  const int quarter = sub % 4;
  const std::byte* low = block + 64 * half + 32 * (quarter % 2);
  const std::byte* high = block + 128 + 32 * half;
  const std::byte* scales = block + 192 + 2 * sub;
  StoredGroup group{};
  group.d = load<std::uint16_t>(block + 208);
  group.sub_scales[0] = load<std::int8_t>(scales);
  group.sub_scales[1] = load<std::int8_t>(scales + 1);
  for (int i = 0; i < 32; ++i) {
    const int four = byte_at(low, i) >> (4 * (quarter / 2)) & 15;
    const int two = byte_at(high, i) >> (2 * quarter) & 3;
    group.codes[i] = static_cast<std::int8_t>((four | two << 4) - 32);
  }
  return group;
}

}  // namespace

StoredGroup read_stored_group(DType dtype, const std::byte* row, std::int64_t group) {
  const device::BlockLayout layout = device::block_layout(dtype);
  const std::int64_t groups_per_block = layout.num_elements / kGroupCols;
  CHECK_GE(groups_per_block, 1);
  const std::byte* block = row + group / groups_per_block * layout.num_bytes;
  const int sub = static_cast<int>(group % groups_per_block);
  switch (dtype) {
    case DType::kQ4_0:
      return read_q4_0(block);
    case DType::kQ4_1:
      return read_q4_1(block);
    case DType::kQ5_0:
      return read_q5_0(block);
    case DType::kQ5_1:
      return read_q5_1(block);
    case DType::kQ8_0:
      return read_q8_0(block);
    case DType::kQ4_K:
      return read_q4_k(block, sub);
    case DType::kQ5_K:
      return read_q5_k(block, sub);
    case DType::kQ6_K:
      return read_q6_k(block, sub);
    default:
      break;
  }
  CHECK(!"a block-quantised type");
  return {};
}

}  // namespace thalweg::kernels
