// DeepSeek-V3 and R1 (DeepSeek-AI 2024) and V3.2, which adds an index to the attention.
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v3 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::deepseek_v3
