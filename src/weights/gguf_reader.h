// Little-endian values out of bytes that may end anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace thalweg::weights {

/// Every read says whether the bytes were there; after a failed one the position has not moved.
class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }
  std::span<const std::byte> since(std::uint64_t start) const { return bytes_.subspan(start, position_ - start); }

  template <typename T>
  bool read(T& value) {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  bool skip(std::uint64_t num_bytes) {
    if (remaining() < num_bytes) return false;
    position_ += num_bytes;
    return true;
  }

  /// A 64-bit length and that many bytes.
  bool read_string(std::string_view& text) {
    std::uint64_t length = 0;
    if (remaining() < sizeof(length)) return false;
    std::memcpy(&length, bytes_.data() + position_, sizeof(length));
    if (length > remaining() - sizeof(length)) return false;
    text = {reinterpret_cast<const char*>(bytes_.data() + position_ + sizeof(length)), length};
    position_ += sizeof(length) + length;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

}  // namespace thalweg::weights
