// Host memory that a GPU reads and writes by itself, used again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/stream.h"

namespace thalweg::device {

/// Slots of equal size, taken in turn: the inputs of a step are written into one while the device still copies from the
/// one before. One thread.
class PinnedRing {
 public:
  static Result<PinnedRing> create(const CudaDevice& device, std::int32_t num_slots, std::size_t slot_bytes);

  /// The next slot. Waits until the device is done with it, if release has been called for it before.
  Result<std::span<std::byte>> acquire();
  /// What was started on `stream` until now uses the slot acquired last; after that it is free again.
  void release(CudaStream& stream);

 private:
  struct Free {
    const CudaTable* table = nullptr;
    void operator()(std::byte* memory) const { table->host_free(memory); }
  };
  PinnedRing(std::unique_ptr<std::byte, Free> memory, std::size_t slot_bytes, std::vector<CudaEvent> done);

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t slot_bytes_;
  std::vector<CudaEvent> done_;  // of each slot; an event never recorded counts as done
  std::size_t slot_;             // acquired last
};

}  // namespace thalweg::device
