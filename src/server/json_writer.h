// Writes JSON text; the token path's only serialiser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace thalweg::server {

/// Appends to a string that the caller owns and keeps. No nesting is tracked: the caller writes the brackets.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& raw(std::string_view json) {
    out_.append(json);
    return *this;
  }
  /// `text` is valid UTF-8.
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(std::int64_t value);
  /// Shortest text that reads back as the same float; values that are no number become null.
  JsonWriter& number(float value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }

 private:
  std::string& out_;
};

/// `bytes` with everything that is not UTF-8 replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

/// Characters that begin in `bytes`.
std::int64_t count_characters(std::string_view bytes);

}  // namespace thalweg::server
