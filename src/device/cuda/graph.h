// A recorded sequence of operations that is started with one call.
#pragma once

#include <memory>

#include "device/cuda/stream.h"

namespace thalweg::device {

/// Replays the same kernels on the same addresses; what they read there may change between launches.
class CudaGraph {
 public:
  /// Records what `body()` starts on `stream` instead of running it. What it calls must not wait for the device.
  template <typename Body>
  static Result<CudaGraph> capture(CudaStream& stream, Body&& body) {
    if (Status status = begin(stream); !status) return std::unexpected(status.error());
    body();
    return end(stream);
  }

  /// On any stream of the device it was captured on.
  void launch(CudaStream& stream) const;

 private:
  using Handle = std::unique_ptr<CUgraphExec_st, CudaDestroy<&CudaTable::graph_destroy>>;
  explicit CudaGraph(Handle handle) : handle_(std::move(handle)) {}
  static Status begin(CudaStream& stream);
  static Result<CudaGraph> end(CudaStream& stream);

  Handle handle_;
};

}  // namespace thalweg::device
