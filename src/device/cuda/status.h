// What failed across the border becomes our Error.
#pragma once

#include <string>

#include "device/cuda/table.h"
#include "thalweg/error.h"

namespace thalweg::device {

/// kResourceExhausted for memory, kUnavailable when the context is lost, else kInternal. `where` says what was going
/// on, e.g. "CUDA device 0"; the message names the call and CUDA's error.
Status to_status(const CudaStatus& status, const std::string& where);

}  // namespace thalweg::device
