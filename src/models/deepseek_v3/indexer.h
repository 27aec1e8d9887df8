// The index of sparse attention (DeepSeek-AI 2025, DeepSeek-V3.2): each query scores a small key of every earlier token
// and attends to the best ones alone. Released checkpoints rotate queries and keys by a Hadamard matrix before they
// quantise them to FP8; the rotation leaves scores as they are, so without quantisation neither is done.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/stream.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/linear/linear.h"
#include "layers/weight_reader.h"
#include "models/deepseek_v3/config.h"

namespace thalweg::models::deepseek_v3 {

struct Indexer {
  IndexShape shape;
  std::int32_t rope_dim = 0;  // the first channels of queries and keys, rotated in halves, unlike the attention's
  kernels::LinearWeight q;    // [num_heads * head_dim, q_lora_rank]
  kernels::LinearWeight k;    // [head_dim, hidden_size]
  std::vector<float> k_norm_weight;  // a LayerNorm's
  std::vector<float> k_norm_bias;
  kernels::LinearWeight head_weights;  // [num_heads, hidden_size]
};

/// `prefix`: "model.layers.3.self_attn.indexer."
Indexer load_indexer(layers::WeightReader& reader, const std::string& prefix, const Config& config);

/// Puts the tokens' keys into the cache. x: [num_tokens, hidden_size]; cos_sin: [num_tokens, rope_dim]; keys: room for
/// [num_tokens, head_dim].
void write_index_keys(device::Stream& stream, const Indexer& indexer, const kernels::PagedRows& cache,
                      const kernels::PagedBatch& batch, const float* x, const float* cos_sin, float* keys);

struct IndexQueries {
  kernels::PagedBatch batch;
  const float* x = nullptr;                   // [num_tokens, hidden_size]
  const float* query_input = nullptr;         // [num_tokens, q_lora_rank], the attention's bottleneck
  const float* cos_sin = nullptr;             // [num_tokens, rope_dim]
  std::span<const std::int32_t> num_visible;  // [num_tokens], the token itself included
  float* q = nullptr;                         // room for [num_tokens, num_heads * head_dim]
  float* head_weights = nullptr;              // room for [num_tokens, num_heads]
  std::int32_t* lists = nullptr;              // [num_tokens, top_k]
};

/// Writes the tokens that each query attends to, rising, -1 behind the last.
void choose_tokens(device::Stream& stream, const Indexer& indexer, const kernels::PagedRows& cache,
                   const IndexQueries& queries);

}  // namespace thalweg::models::deepseek_v3
