#include "device/cuda/stream.h"

#include <fmt/format.h>

#include "device/cuda/status.h"

namespace thalweg::device {

CudaEvent::CudaEvent(const CudaDevice& device, CUevent_st* handle)
    : device_(device), handle_(handle, {&device.table()}) {}

Result<CudaEvent> CudaEvent::create(const CudaDevice& device, bool with_timing) {
  CUevent_st* handle = nullptr;
  if (Status status = device.check(device.table().event_create(device.ordinal(), with_timing, &handle)); !status) {
    return std::unexpected(status.error());
  }
  return CudaEvent(device, handle);
}

Status CudaEvent::synchronize() const { return device_.check(device_.table().event_synchronize(handle())); }

Result<bool> CudaEvent::is_done() const {
  bool is_done = false;
  if (Status status = device_.check(device_.table().event_is_done(handle(), &is_done)); !status) {
    return std::unexpected(status.error());
  }
  return is_done;
}

Result<float> CudaEvent::elapsed_ms_since(const CudaEvent& earlier) const {
  float elapsed_ms = 0.0F;
  const CudaStatus status = device_.table().event_elapsed_ms(earlier.handle(), handle(), &elapsed_ms);
  if (Status checked = device_.check(status); !checked) return std::unexpected(checked.error());
  return elapsed_ms;
}

CudaStream::CudaStream(const CudaDevice& device, CUstream_st* handle)
    : device_(device), handle_(handle, {&device.table()}) {}

Result<CudaStream> CudaStream::create(const CudaDevice& device) {
  CUstream_st* handle = nullptr;
  if (Status status = device.check(device.table().stream_create(device.ordinal(), &handle)); !status) {
    return std::unexpected(status.error());
  }
  return CudaStream(device, handle);
}

void CudaStream::copy(void* to, const void* from, std::size_t num_bytes) {
  if (num_bytes > 0) note("copy", table().copy(handle(), to, from, num_bytes));
}

void CudaStream::fill(void* to, std::uint8_t value, std::size_t num_bytes) {
  if (num_bytes > 0) note("fill", table().fill(handle(), to, value, num_bytes));
}

void CudaStream::record(const CudaEvent& event) { note("record", table().event_record(event.handle(), handle())); }

void CudaStream::wait(const CudaEvent& event) { note("wait", table().stream_wait(handle(), event.handle())); }

void CudaStream::note(const char* operation, const CudaStatus& status) {
  last_operation_ = operation;
  if (status.failure == CudaFailure::kNone || !status_) return;
  status_ = to_status(status, fmt::format("{}, starting {}", device_.name(), operation));
}

const Status& CudaStream::synchronize() {
  const CudaStatus status = table().stream_synchronize(handle());
  if (status.failure == CudaFailure::kNone || !status_) return status_;
  status_ = to_status(status, fmt::format("{}, {} started last", device_.name(), last_operation_));
  if (status.failure == CudaFailure::kSticky) {
    status_.error().message += "; with CUDA_LAUNCH_BLOCKING=1 the kernel at fault is named";
  }
  return status_;
}

}  // namespace thalweg::device
