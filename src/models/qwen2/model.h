// Qwen2: Llama's decoder with biases on queries, keys and values (Yang et al. 2024).
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::qwen2 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::qwen2
