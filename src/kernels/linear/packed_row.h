// Reading packed weights back, one group or one float at a time: what the reference multiplies with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/packed.h"

namespace thalweg::kernels {

/// w = scale * sub_scales[column / 16] * code + min; sub_scales are 1 for codings without scales per 16 columns.
struct PackedGroup {
  int codes[kGroupCols];
  int sub_scales[2];
  float scale;
  float min;  // 0 for codings without one
};

bool is_float(Coding coding);
bool has_min(Coding coding);

/// Precondition: a quantised coding. `row` counts from the part's first row.
PackedGroup read_packed_group(const PackedPart& part, const std::byte* tiles, std::int64_t row, std::int64_t group);

/// Precondition: a float coding.
float read_packed_float(const PackedPart& part, const std::byte* tiles, std::int64_t row, std::int64_t col);

}  // namespace thalweg::kernels
