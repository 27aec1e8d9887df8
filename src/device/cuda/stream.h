// A GPU's in-order queue, and events to wait for and to measure with.
#pragma once

#include <cstddef>
#include <memory>

#include "device/cuda/device.h"

namespace thalweg::device {

/// Destroys a handle through the table that made it.
template <auto kDestroy>
struct CudaDestroy {
  const CudaTable* table = nullptr;
  template <typename Handle>
  void operator()(Handle* handle) const {
    (table->*kDestroy)(handle);  // after a sticky error this fails, too; nothing is left to be done about it
  }
};

class CudaEvent {
 public:
  static Result<CudaEvent> create(const CudaDevice& device, bool with_timing = false);

  CUevent_st* handle() const { return handle_.get(); }
  Status synchronize() const;
  Result<bool> is_done() const;
  /// Both made with timing, recorded and done.
  Result<float> elapsed_ms_since(const CudaEvent& earlier) const;

 private:
  CudaEvent(const CudaDevice& device, CUevent_st* handle);

  CudaDevice device_;
  std::unique_ptr<CUevent_st, CudaDestroy<&CudaTable::event_destroy>> handle_;
};

/// Used by one thread at a time, which has called make_current of its device. Operations are started and not waited
/// for.
///
/// The first failure is kept: what is started after it changes nothing about it, so a step may launch all it has and
/// ask once, at the end.
class CudaStream {
 public:
  static Result<CudaStream> create(const CudaDevice& device);

  const CudaDevice& device() const { return device_; }
  const CudaTable& table() const { return device_.table(); }
  CUstream_st* handle() const { return handle_.get(); }

  /// From and to memory of any device or pinned memory; pageable host memory makes it wait.
  void copy(void* to, const void* from, std::size_t num_bytes);
  void fill(void* to, std::uint8_t value, std::size_t num_bytes);
  void record(const CudaEvent& event);
  void wait(const CudaEvent& event);

  /// What starting `operation`, a literal, came to.
  void note(const char* operation, const CudaStatus& status);

  /// The first failure of anything started here, as far as it is known without waiting.
  const Status& status() const { return status_; }
  /// Waits for all that was started. A fault of a running kernel shows here: the message says what was started last,
  /// and how to learn which kernel it was.
  const Status& synchronize();

 private:
  CudaStream(const CudaDevice& device, CUstream_st* handle);

  CudaDevice device_;
  std::unique_ptr<CUstream_st, CudaDestroy<&CudaTable::stream_destroy>> handle_;
  const char* last_operation_ = "nothing";
  Status status_;
};

}  // namespace thalweg::device
