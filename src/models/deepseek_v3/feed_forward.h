// DeepSeek's mixture of experts: a router with a bias that balances load without a loss (DeepSeek-AI 2024, DeepSeek-V3,
// section 2.1.2), and shared experts that every token passes through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/stream.h"
#include "layers/gated_mlp.h"
#include "layers/moe.h"
#include "layers/weight_reader.h"
#include "models/deepseek_v3/config.h"

namespace thalweg::models::deepseek_v3 {

struct BalancedMoe {
  layers::Moe routed;
  std::vector<float> bias;  // [num_experts], of the choice alone
  RouterConfig router;
  layers::GatedMlp shared;
};

/// `prefix`: "model.layers.3.mlp."
BalancedMoe load_balanced_moe(layers::WeightReader& reader, const std::string& prefix, const Config& config);

/// residual += the experts of x, both [num_tokens, hidden_size]; inner: room for the shared experts' inner rows.
void balanced_moe(device::Stream& stream, const BalancedMoe& layer, std::int64_t num_tokens, const float* x,
                  layers::MoeScratch& scratch, float* inner, float* residual);

}  // namespace thalweg::models::deepseek_v3
