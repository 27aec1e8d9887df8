// Reading one group of 32 weights from the block formats of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/dtype.h"
#include "kernels/linear/packed.h"

namespace thalweg::kernels {

/// w = f16(d) * sub_scales[column / 16] * code + f16(m) * sub_min. For formats without sub-scales these are 1; a format
/// without a minimum has m = 0.
struct StoredGroup {
  std::int8_t codes[kGroupCols];
  std::uint16_t d;
  std::uint16_t m;
  std::int16_t sub_scales[2];
  std::int16_t sub_min;
};

/// Group `group` of a row of a block-quantised type.
StoredGroup read_stored_group(device::DType dtype, const std::byte* row, std::int64_t group);

}  // namespace thalweg::kernels
