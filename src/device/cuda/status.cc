#include "device/cuda/status.h"

#include <fmt/format.h>

namespace thalweg::device {

Status to_status(const CudaStatus& status, const std::string& where) {
  const std::string what = fmt::format("{}: {} failed with {} ({}: {})", where, status.call ? status.call : "",
                                       status.code, status.name ? status.name : "", status.text ? status.text : "");
  switch (status.failure) {
    case CudaFailure::kNone:
      return {};
    case CudaFailure::kOutOfMemory:
      return fail(ErrorCode::kResourceExhausted, what);
    case CudaFailure::kSticky:
      return fail(ErrorCode::kUnavailable, what + "; the device's context is lost, only a new process gets another");
    case CudaFailure::kOther:
      break;
  }
  return fail(ErrorCode::kInternal, what);
}

}  // namespace thalweg::device
