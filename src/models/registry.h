// All architectures, one line each in registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/load_options.h"
#include "models/model.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models {

/// Loads a checkpoint of any known architecture. The checkpoint may be closed afterwards.
Result<std::unique_ptr<Model>> load_model(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                          const LoadOptions& options);

/// Names as checkpoints write them, GGUF and Hugging Face.
std::vector<std::string> supported_architectures();

}  // namespace thalweg::models
