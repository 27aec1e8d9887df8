// Qwen3: Llama's decoder with a norm on every query and key head (Yang et al. 2025).
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::qwen3 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::qwen3
