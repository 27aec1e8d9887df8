#include "device/cuda/runtime.h"

namespace thalweg::device {
namespace {

CudaStatus set_device(std::int32_t device) { return status_of("cudaSetDevice", cudaSetDevice(device)); }

// Streams and events do not wait for the legacy default stream, which nobody uses.
CudaStatus stream_create(std::int32_t device, CUstream_st** stream) {
  if (const CudaStatus status = set_device(device); status.failure != CudaFailure::kNone) return status;
  return status_of("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

CudaStatus stream_destroy(CUstream_st* stream) { return status_of("cudaStreamDestroy", cudaStreamDestroy(stream)); }

CudaStatus stream_synchronize(CUstream_st* stream) {
  return status_of("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

CudaStatus stream_wait(CUstream_st* stream, CUevent_st* event) {
  return status_of("cudaStreamWaitEvent", cudaStreamWaitEvent(stream, event));
}

CudaStatus event_create(std::int32_t device, bool with_timing, CUevent_st** event) {
  if (const CudaStatus status = set_device(device); status.failure != CudaFailure::kNone) return status;
  const unsigned int flags = with_timing ? cudaEventDefault : cudaEventDisableTiming;
  return status_of("cudaEventCreateWithFlags", cudaEventCreateWithFlags(event, flags));
}

CudaStatus event_destroy(CUevent_st* event) { return status_of("cudaEventDestroy", cudaEventDestroy(event)); }

CudaStatus event_record(CUevent_st* event, CUstream_st* stream) {
  return status_of("cudaEventRecord", cudaEventRecord(event, stream));
}

CudaStatus event_synchronize(CUevent_st* event) {
  return status_of("cudaEventSynchronize", cudaEventSynchronize(event));
}

CudaStatus event_is_done(CUevent_st* event, bool* is_done) {
  const cudaError_t code = cudaEventQuery(event);
  *is_done = code == cudaSuccess;
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return {};
  }
  return status_of("cudaEventQuery", code);
}

CudaStatus event_elapsed_ms(CUevent_st* first, CUevent_st* last, float* elapsed_ms) {
  return status_of("cudaEventElapsedTime", cudaEventElapsedTime(elapsed_ms, first, last));
}

CudaStatus copy(CUstream_st* stream, void* to, const void* from, std::size_t num_bytes) {
  return status_of("cudaMemcpyAsync", cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, stream));
}

CudaStatus fill(CUstream_st* stream, void* to, std::uint8_t value, std::size_t num_bytes) {
  return status_of("cudaMemsetAsync", cudaMemsetAsync(to, value, num_bytes, stream));
}

}  // namespace

void fill_in_streams(CudaTable& table) {
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_wait = stream_wait;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_synchronize = event_synchronize;
  table.event_is_done = event_is_done;
  table.event_elapsed_ms = event_elapsed_ms;
  table.copy = copy;
  table.fill = fill;
}

}  // namespace thalweg::device
