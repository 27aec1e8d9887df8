// DeepSeek-V4 (DeepSeek-AI 2026): hyper-connected residual streams, attention over a window and compressed entries.
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v4 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::deepseek_v4
