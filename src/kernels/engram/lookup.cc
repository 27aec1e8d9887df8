#include <cstdint>

#include "base/check.h"
#include "device/float_types.h"
#include "kernels/engram/engram.h"
#include "kernels/for_each_row.h"

namespace thalweg::kernels {
namespace {

constexpr std::int32_t kGroup = 32;  // channels that share a scale

void decode_row(const EngramTable& table, std::int64_t row, float* out) {
  const std::int64_t num_groups = table.head_dim / kGroup;
  const std::byte* codes = table.codes + row * table.head_dim;
  const std::byte* scales = table.scales + row * num_groups;
  for (std::int64_t group = 0; group < num_groups; ++group) {
    const float scale = device::float_from_f8_e8m0(std::to_integer<std::uint8_t>(scales[group]));
    for (std::int64_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      out[i] = scale * device::float_from_f8_e4m3(std::to_integer<std::uint8_t>(codes[i]));
    }
  }
}

}  // namespace

void engram_lookup(device::Stream& stream, const EngramTable& table, std::span<const std::int64_t> rows, float* out) {
  CHECK_EQ(table.head_dim % kGroup, 0);
  for (const std::int64_t row : rows) {
    CHECK_GE(row, 0);
    CHECK_LT(row, table.num_rows);
  }
  // Rows that are not in memory yet are read by page faults, which wait for the disk: threads share out even a few.
  constexpr std::int64_t kRowCost = 16 * 1024;
  for_each_row(stream, static_cast<std::int64_t>(rows.size()), kRowCost,
               [&](std::int64_t i) { decode_row(table, rows[i], out + i * table.head_dim); });
}

}  // namespace thalweg::kernels
