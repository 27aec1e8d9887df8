// Gemma 3: norms before and after each part, local and global layers with their own rotary bases (Kamath et al. 2025).
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::gemma3 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::gemma3
