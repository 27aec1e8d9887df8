#pragma once

#include <cstdint>

namespace thalweg::kernels::rotation {

/// Rotates the first 2 * num_pairs elements of each of `num_heads` heads of one token. cos, sin: [num_pairs].
struct RopeTokenArgs {
  float* x = nullptr;  // [num_heads, head_dim]
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t num_pairs = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
};

using RopeToken = void(const RopeTokenArgs& args);

RopeToken rope_halves_reference;
RopeToken rope_interleaved_reference;
RopeToken rope_halves_avx2;
RopeToken rope_interleaved_avx2;

}  // namespace thalweg::kernels::rotation
