// Which tensors a Llama checkpoint holds.
#pragma once

#include "layers/weight_reader.h"
#include "models/llama/config.h"
#include "models/pre_norm_decoder.h"

namespace thalweg::models::llama {

/// Problems are left in `reader.status()`.
PreNormWeights load_weights(layers::WeightReader& reader, const Config& config);

/// GGUF files of Llama 3 carry its frequency scaling as a tensor of divisors. Divides `frequencies` by it, if there is
/// one.
Status apply_rope_divisors(layers::WeightReader& reader, kernels::RopeFrequencies& frequencies);

}  // namespace thalweg::models::llama
