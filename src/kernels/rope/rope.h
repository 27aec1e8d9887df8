// Rotary position embedding (Su et al. 2021) with the scalings in use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/stream.h"
#include "thalweg/error.h"

namespace thalweg::kernels {

/// Which elements are rotated together.
enum class RopePairing : std::uint8_t {
  kHalves,       // (i, i + rope_dim/2): Hugging Face layout ("neox")
  kInterleaved,  // (2i, 2i + 1): the original Llama layout, kept by GGUF files of that architecture
};

/// Inverse frequencies [rope_dim / 2] and the factor on cosines and sines (1 unless YaRN).
struct RopeFrequencies {
  std::vector<float> inverse;
  float magnitude = 1.0F;
};

RopeFrequencies rope_default(std::int32_t rope_dim, double base);
RopeFrequencies rope_linear(std::int32_t rope_dim, double base, double factor);
/// Llama 3: long waves are divided by `factor`, short ones kept, a smooth ramp between.
RopeFrequencies rope_llama3(std::int32_t rope_dim, double base, double factor, double low_freq_factor,
                            double high_freq_factor, std::int32_t original_max_position);
/// YaRN (Peng et al. 2023). `attention_factor` <= 0: 0.1 ln(factor) + 1.
RopeFrequencies rope_yarn(std::int32_t rope_dim, double base, double factor, std::int32_t original_max_position,
                          double beta_fast, double beta_slow, double attention_factor);

struct RopeParams {
  float* x = nullptr;  // [num_tokens, num_heads, head_dim], token stride x_stride; the first rope_dim of each head
  std::int64_t x_stride = 0;
  std::int64_t num_tokens = 0;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t rope_dim = 0;
  RopePairing pairing = RopePairing::kHalves;
  const float* cos_sin = nullptr;  // [num_tokens, rope_dim]: cosines, then sines, from rope_table
};

/// Cosines and sines of this step's positions, shared by all layers with the same frequencies. Angles in double.
void rope_table(device::Stream& stream, const RopeFrequencies& frequencies, std::span<const std::int32_t> positions,
                float* cos_sin);

/// In place.
void rope(device::Stream& stream, const RopeParams& params);

}  // namespace thalweg::kernels
