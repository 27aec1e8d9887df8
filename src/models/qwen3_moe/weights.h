// Which tensors a Qwen3-MoE checkpoint holds.
#pragma once

#include "layers/weight_reader.h"
#include "models/pre_norm_decoder.h"
#include "models/qwen3_moe/config.h"

namespace thalweg::models::qwen3_moe {

/// Problems are left in `reader.status()`.
PreNormWeights load_weights(layers::WeightReader& reader, const Config& config);

}  // namespace thalweg::models::qwen3_moe
