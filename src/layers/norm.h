// RMS normalisation with its weight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/stream.h"
#include "layers/weight_reader.h"

namespace thalweg::layers {

struct Norm {
  std::vector<float> weight;
  float epsilon = 0.0F;
};

/// `name` without ".weight".
Norm load_norm(WeightReader& reader, const std::string& name, std::int64_t size, float epsilon);

/// out = norm(x), both [num_tokens, size]; out may be x.
void norm(device::Stream& stream, const Norm& layer, std::int64_t num_tokens, const float* x, float* out);

/// residual += norm(x); x is overwritten.
void add_norm(device::Stream& stream, const Norm& layer, std::int64_t num_tokens, float* x, float* residual);

/// Normalises each of `num_heads` heads of each token, in place; token stride in elements.
void head_norm(device::Stream& stream, const Norm& layer, std::int64_t num_tokens, std::int32_t num_heads, float* x,
               std::int64_t stride);

}  // namespace thalweg::layers
