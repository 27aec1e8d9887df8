// DeepSeek-V4.1: a causal encoder-decoder of window and compressed attention, hyper-connections, Engram tables,
// experts, and a draft model (DeepSeek-V4.1 specification).
#pragma once

#include <memory>

#include "models/load_options.h"
#include "models/model.h"
#include "thalweg/error.h"

namespace thalweg::models::deepseek_v41 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::deepseek_v41
