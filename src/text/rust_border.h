// Values across the border of the Rust crate, with owners.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thalweg_rust.h"

namespace thalweg::text {

inline tw_slice slice_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Copies out of a buffer and gives it back.
inline std::string take_text(tw_buffer& buffer) {
  std::string text(reinterpret_cast<const char*>(buffer.data), buffer.size);
  tw_buffer_free(&buffer);
  return text;
}

inline std::vector<std::int32_t> take_ids(tw_ids& ids) {
  std::vector<std::int32_t> values(ids.data, ids.data + ids.size);
  tw_ids_free(&ids);
  return values;
}

}  // namespace thalweg::text
