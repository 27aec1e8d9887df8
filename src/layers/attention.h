// Grouped-query attention over the paged cache, with the parts that some families add: biases, a norm on each query
// and key head, a sliding window.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/stream.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/linear/linear.h"
#include "layers/norm.h"
#include "layers/weight_reader.h"

namespace thalweg::layers {

struct AttentionShape {
  std::int32_t hidden_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;

  std::int64_t q_size() const { return std::int64_t{num_heads} * head_dim; }
  std::int64_t kv_size() const { return std::int64_t{num_kv_heads} * head_dim; }
  std::int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
};

struct Attention {
  AttentionShape shape;
  kernels::LinearWeight qkv;    // queries, keys, values one after the other
  std::vector<float> qkv_bias;  // empty: none
  Norm q_norm;                  // on each head; empty weight: none
  Norm k_norm;
  kernels::LinearWeight out;
  std::vector<float> out_bias;  // empty: none
  float scale = 1.0F;           // on the scores
  std::int32_t window = 0;      // keys a query sees, itself included; 0: all
};

/// Tensors of one layer, without ".weight" or ".bias".
struct AttentionNames {
  std::string q;
  std::string k;
  std::string v;
  std::string out;
  std::string q_norm;
  std::string k_norm;
};

struct AttentionFeatures {
  bool qkv_bias = false;
  bool out_bias = false;
  bool head_norms = false;
  float head_norm_epsilon = 0.0F;
  /// The rows of queries and keys are ordered for rotation of neighbours (2i, 2i + 1), as GGUF files of the llama
  /// architecture store them. They are put back to halves (i, i + head_dim / 2): one rotation kernel for all families.
  bool interleaved_rotary_rows = false;
};

Attention load_attention(WeightReader& reader, const AttentionNames& names, const AttentionShape& shape,
                         const AttentionFeatures& features);

/// Queries, keys and values of all tokens, rotated; keys and values go into the cache. x: [num_tokens, hidden_size];
/// cos_sin: [num_tokens, head_dim]; qkv: [num_tokens, qkv_size].
void project_qkv(device::Stream& stream, const Attention& layer, const kernels::PagedKv& cache,
                 const kernels::PagedBatch& batch, const float* x, const float* cos_sin, float* qkv);

/// The queries' weighted values. qkv: rows of the batch's tokens; attended: [num_tokens, q_size].
void attend(device::Stream& stream, const Attention& layer, const kernels::PagedKv& cache,
            const kernels::PagedBatch& batch, const float* qkv, float* attended);

/// Back to the hidden size; kAccumulate adds to `out`, [num_tokens, hidden_size].
void project_out(device::Stream& stream, const Attention& layer, std::int64_t num_tokens, const float* attended,
                 kernels::Epilogue epilogue, float* out);

}  // namespace thalweg::layers
