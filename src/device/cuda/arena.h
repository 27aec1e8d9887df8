// Device memory with addresses that outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/cuda/device.h"

namespace thalweg::device {

/// A range of addresses is reserved once, memory is put behind it as far as it is needed, taken away for sleep, and put
/// back at the same addresses, so that pointers and captured graphs stay good. Not thread-safe.
class CudaArena {
 public:
  /// Takes addresses for `num_bytes` and no memory. `peers` may use the memory, too.
  static Result<CudaArena> reserve(const CudaDevice& device, std::size_t num_bytes,
                                   std::span<const CudaDevice> peers = {});
  ~CudaArena();
  CudaArena(CudaArena&& other) noexcept;
  CudaArena& operator=(CudaArena&& other) noexcept;

  /// Puts memory behind the first `num_bytes`, in whole granules; more than there is stays. On failure, which says how
  /// much is short, nothing has changed.
  Status grow(std::size_t num_bytes);

  /// Cuts `num_bytes` off, from what grow has provided: sizes are planned before they are taken, so too little is a
  /// programmer's mistake. Undefined content, 256-byte aligned.
  std::byte* take(std::size_t num_bytes);

  /// Gives the memory back. Nothing on the device may use it any more; its content is lost.
  Status sleep();
  /// As much as before sleep, of undefined content.
  Status wake();

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  std::size_t reserved_bytes() const { return reserved_bytes_; }
  std::size_t mapped_bytes() const { return mapped_bytes_; }
  std::size_t taken_bytes() const { return taken_bytes_; }

 private:
  struct Part {
    std::size_t offset;
    std::size_t num_bytes;
    std::uint64_t memory;
  };
  explicit CudaArena(const CudaDevice& device) : device_(device) {}
  void swap(CudaArena& other) noexcept;

  CudaDevice device_;
  std::vector<std::int32_t> users_;  // ordinals
  std::uint64_t address_ = 0;
  std::size_t granularity_ = 0;
  std::size_t reserved_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::size_t taken_bytes_ = 0;
  std::size_t wake_bytes_ = 0;  // mapped before sleep
  std::vector<Part> parts_;     // in order, without gaps
};

}  // namespace thalweg::device
