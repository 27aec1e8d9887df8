// Many small buffers in few huge pages.
#pragma once

#include <cstddef>
#include <memory>

#include "device/buffer.h"

namespace thalweg::device {

/// Cuts buffers from large mappings. A step reads every weight once; from 4 KiB pages that runs a quarter
/// slower than from huge ones, and most weights are too small for a huge page of their own. Not thread-safe.
class Arena {
 public:
  /// Zeroed, 64-byte aligned. The mapping lives as long as any buffer cut from it, with or without the arena.
  Buffer take(std::size_t num_bytes);

 private:
  std::shared_ptr<Buffer> mapping_;
  std::size_t used_ = 0;
};

}  // namespace thalweg::device
