// down(act(gate(x)) * up(x)): the feed-forward part of every family here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/stream.h"
#include "kernels/linear/linear.h"
#include "layers/weight_reader.h"

namespace thalweg::layers {

struct GatedMlp {
  kernels::LinearWeight gate_up;    // rows interleaved, so that the product is formed in the epilogue
  std::vector<float> gate_up_bias;  // interleaved; empty: none
  kernels::LinearWeight down;
  std::vector<float> down_bias;  // empty: none
  kernels::Epilogue activation = kernels::Epilogue::kSiluMul;
};

/// Tensors of one layer, without ".weight" or ".bias".
struct GatedMlpNames {
  std::string gate;
  std::string up;
  std::string down;
};

GatedMlp load_gated_mlp(WeightReader& reader, const GatedMlpNames& names, std::int64_t hidden_size,
                        std::int64_t intermediate_size, kernels::Epilogue activation, bool with_bias = false);

/// x: [num_tokens, hidden_size]; inner: room for [num_tokens, intermediate_size]; kAccumulate adds to `out`.
void gated_mlp(device::Stream& stream, const GatedMlp& layer, std::int64_t num_tokens, const float* x, float* inner,
               kernels::Epilogue epilogue, float* out);

}  // namespace thalweg::layers
