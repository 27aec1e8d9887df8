// Which tensors a Qwen2 checkpoint holds.
#pragma once

#include "layers/weight_reader.h"
#include "models/pre_norm_decoder.h"
#include "models/qwen2/config.h"

namespace thalweg::models::qwen2 {

/// Problems are left in `reader.status()`.
PreNormWeights load_weights(layers::WeightReader& reader, const Config& config);

}  // namespace thalweg::models::qwen2
