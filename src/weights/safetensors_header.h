// The JSON header of a safetensors file as it is written there, not yet checked against the file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thalweg/error.h"

namespace thalweg::weights {

struct SafetensorsEntry {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::array<std::uint64_t, 2> data_offsets{};  // from the end of the header
};

/// Everything but "__metadata__", whose members must be strings. A tensor must have each of its three
/// members once and no other. The problem alone is in the message; the caller adds the file.
Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view text);

}  // namespace thalweg::weights
