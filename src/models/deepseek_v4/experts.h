// DeepSeek-V4's mixture of experts: scores are sqrt(softplus); the first layers choose experts by token id.
#pragma once

#include <cstdint>
#include <span>

#include "device/stream.h"
#include "layers/moe.h"
#include "models/deepseek_v4/config.h"
#include "models/deepseek_v4/weights.h"

namespace thalweg::models::deepseek_v4 {

/// out = the experts of x, both [num_tokens, hidden_size] and apart.
void experts(device::Stream& stream, const Config& config, const ExpertWeights& weights,
             std::span<const std::int32_t> token_ids, const float* x, layers::MoeScratch& scratch, float* out);

}  // namespace thalweg::models::deepseek_v4
