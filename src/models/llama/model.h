// Llama: pre-norm decoder, grouped-query attention, gated MLP (Touvron et al. 2023; Grattafiori et al. 2024).
#pragma once

#include <memory>

#include "models/load_options.h"
#include "weights/checkpoint.h"

namespace thalweg::models::llama {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options);

}  // namespace thalweg::models::llama
