// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1) in its absorbed form: the projection of
// latents to keys is applied to the queries instead, and that to values to the result, so that attention itself runs
// over the cached latents and no key or value of a head is ever formed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/stream.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/linear/linear.h"
#include "kernels/rope/rope.h"
#include "layers/norm.h"
#include "layers/weight_reader.h"
#include "models/deepseek_v3/config.h"

namespace thalweg::models::deepseek_v3 {

struct Mla {
  MlaShape shape;
  float scale = 1.0F;
  kernels::RopePairing pairing = kernels::RopePairing::kInterleaved;

  kernels::LinearWeight q_a;  // without rows when there is no bottleneck
  layers::Norm q_norm;
  kernels::LinearWeight q_b;   // [num_heads * (nope + rope), q_lora_rank or hidden_size]
  kernels::LinearWeight kv_a;  // [kv_lora_rank + rope, hidden_size]
  layers::Norm kv_norm;
  std::vector<kernels::LinearWeight> absorb_key;  // per head, [kv_lora_rank, nope]
  std::vector<kernels::LinearWeight> to_value;    // per head, [value, kv_lora_rank]
  kernels::LinearWeight out;                      // [hidden_size, num_heads * value]
};

/// `prefix`: "model.layers.3.self_attn."
Mla load_mla(layers::WeightReader& reader, device::Stream& stream, const std::string& prefix, const Config& config);

/// Puts the tokens' latents and rotated keys into the cache. x: [num_tokens, hidden_size]; cos_sin: [num_tokens,
/// rope_dim]; rows: room for [num_tokens, row_dim].
void write_latents(device::Stream& stream, const Mla& layer, const kernels::PagedRows& cache,
                   const kernels::PagedBatch& batch, const float* x, const float* cos_sin, float* rows);

/// The input of q_b: x itself, or the normalised bottleneck written to `bottleneck`, [num_tokens, q_lora_rank].
const float* query_input(device::Stream& stream, const Mla& layer, std::int64_t num_tokens, const float* x,
                         float* bottleneck);

/// What the cached rows are compared with: [num_tokens, num_heads, row_dim], from query_input's result. q: room for
/// [num_tokens, q_size].
void absorbed_queries(device::Stream& stream, const Mla& layer, std::int64_t num_tokens, const float* input,
                      const float* cos_sin, float* q, float* absorbed);

/// Adds to `residual` [num_tokens, hidden_size] what the heads found, latents [num_tokens, num_heads, kv_lora_rank].
/// values: room for [num_tokens, value_size].
void add_output(device::Stream& stream, const Mla& layer, std::int64_t num_tokens, const float* latents, float* values,
                float* residual);

}  // namespace thalweg::models::deepseek_v3
