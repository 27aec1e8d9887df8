// Owned memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace thalweg::device {

/// Host memory, 64-byte aligned and zeroed, from anonymous pages (huge pages asked for from 2 MiB
/// up). Aborts when the system refuses; sizes are planned before they are taken.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t num_bytes);
  /// Bytes [offset, offset + num_bytes) of `whole`, which stays alive as long as this buffer does.
  Buffer(std::shared_ptr<Buffer> whole, std::size_t offset, std::size_t num_bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  // 0: memory of whole_
  std::shared_ptr<Buffer> whole_;
};

}  // namespace thalweg::device
