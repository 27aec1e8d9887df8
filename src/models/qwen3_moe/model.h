// Qwen3-MoE: Qwen3 with experts in place of the feed-forward part (Yang et al. 2025).
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::qwen3_moe {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::qwen3_moe
