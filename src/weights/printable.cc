#include "weights/printable.h"

#include <fmt/core.h>

#include <cstdint>

namespace thalweg::weights {
namespace {

// Bytes of the well-formed, printable character that `text` starts with, or 0.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = byte(0) & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const std::uint32_t smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool control = code < 0xa0;  // C1: a terminal may obey these
  return code < smallest || code > 0x10ffff || surrogate || control ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string shown;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t length = character_length(text.substr(position, 4));
    if (shown.size() + (length == 0 ? 4 : length) > max_bytes) return shown + "...";
    if (length == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[position]));
    } else {
      shown += text.substr(position, length);
    }
    position += length == 0 ? 1 : length;
  }
  return shown;
}

}  // namespace thalweg::weights
