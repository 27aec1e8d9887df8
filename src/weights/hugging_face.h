// A model folder as Hugging Face's libraries write it.
#pragma once

#include <memory>
#include <string>

#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::weights {

/// Needs config.json and model.safetensors, or the shards that model.safetensors.index.json names, or one
/// *.safetensors file of any name. Pickled weights (.bin, .pt, .pth) are refused: reading them runs code.
Result<std::unique_ptr<Checkpoint>> open_hugging_face(const std::string& folder);

}  // namespace thalweg::weights
