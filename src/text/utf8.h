// UTF-8 that may be broken. The rule for what is broken is Unicode's "maximal subpart" (section 3.9):
// each longest beginning of a character that is not continued becomes one U+FFFD, every other byte one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace thalweg::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Step {
  std::size_t size = 0;  // bytes to take, at least 1 of a non-empty text
  enum class Kind { kCharacter, kBroken, kUnfinished } kind = Kind::kCharacter;
};

/// What begins at the start of `text`, which is not empty. kUnfinished: all of `text` is the beginning
/// of a character that more bytes could complete.
Utf8Step next_utf8(std::string_view text);

/// Appends `text` to `out` with what is broken replaced.
void append_valid_utf8(std::string_view text, std::string& out);

/// Size of the longest beginning of `text` that does not end inside a character.
std::size_t finished_utf8_size(std::string_view text);

}  // namespace thalweg::text
