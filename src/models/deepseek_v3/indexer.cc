#include "models/deepseek_v3/indexer.h"

#include <cmath>
#include <cstdint>

#include "device/thread_pool.h"
#include "kernels/index/index.h"
#include "kernels/rope/rope.h"

namespace thalweg::models::deepseek_v3 {
namespace {

constexpr float kKeyNormEpsilon = 1e-6F;

void project(device::Stream& stream, const kernels::LinearWeight& weight, std::int64_t num_tokens, const float* x,
             float* out) {
  kernels::linear(stream, {.x = x,
                           .x_stride = weight.num_cols(),
                           .num_tokens = num_tokens,
                           .weight = &weight,
                           .out = out,
                           .out_stride = weight.num_rows()});
}

void rotate(device::Stream& stream, const Indexer& indexer, std::int64_t num_tokens, std::int32_t num_heads, float* x,
            const float* cos_sin) {
  kernels::rope(stream, {.x = x,
                         .x_stride = std::int64_t{num_heads} * indexer.shape.head_dim,
                         .num_tokens = num_tokens,
                         .num_heads = num_heads,
                         .head_dim = indexer.shape.head_dim,
                         .rope_dim = indexer.rope_dim,
                         .pairing = kernels::RopePairing::kHalves,
                         .cos_sin = cos_sin});
}

/// LayerNorm of one row, in place.
void normalize_key(const Indexer& indexer, float* key) {
  const auto size = static_cast<std::size_t>(indexer.shape.head_dim);
  float sum = 0.0F;
  for (std::size_t i = 0; i < size; ++i) sum += key[i];
  const float mean = sum / static_cast<float>(size);
  float squares = 0.0F;
  for (std::size_t i = 0; i < size; ++i) squares += (key[i] - mean) * (key[i] - mean);
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(size) + kKeyNormEpsilon);
  for (std::size_t i = 0; i < size; ++i) {
    key[i] = (key[i] - mean) * scale * indexer.k_norm_weight[i] + indexer.k_norm_bias[i];
  }
}

}  // namespace

Indexer load_indexer(layers::WeightReader& reader, const std::string& prefix, const Config& config) {
  const IndexShape& shape = config.index;
  const MlaShape& attention = config.attention;
  Indexer indexer{.shape = shape, .rope_dim = attention.rope_dim};
  indexer.q = reader.linear(prefix + "wq_b", std::int64_t{shape.num_heads} * shape.head_dim, attention.q_lora_rank);
  indexer.k = reader.linear(prefix + "wk", shape.head_dim, attention.hidden_size);
  indexer.k_norm_weight = reader.vector(prefix + "k_norm.weight", shape.head_dim);
  indexer.k_norm_bias = reader.vector(prefix + "k_norm.bias", shape.head_dim);
  indexer.head_weights = reader.linear(prefix + "weights_proj", shape.num_heads, attention.hidden_size);
  return indexer;
}

void write_index_keys(device::Stream& stream, const Indexer& indexer, const kernels::PagedRows& cache,
                      const kernels::PagedBatch& batch, const float* x, const float* cos_sin, float* keys) {
  const auto num_tokens = static_cast<std::int64_t>(batch.positions.size());
  project(stream, indexer.k, num_tokens, x, keys);
  stream.threads->parallel_for(
      num_tokens, [&](std::int64_t token, int) { normalize_key(indexer, keys + token * indexer.shape.head_dim); });
  rotate(stream, indexer, num_tokens, 1, keys, cos_sin);
  kernels::write_rows(stream, cache, batch, keys);
}

void choose_tokens(device::Stream& stream, const Indexer& indexer, const kernels::PagedRows& cache,
                   const IndexQueries& queries) {
  const IndexShape& shape = indexer.shape;
  const auto num_tokens = static_cast<std::int64_t>(queries.batch.positions.size());
  project(stream, indexer.q, num_tokens, queries.query_input, queries.q);
  rotate(stream, indexer, num_tokens, shape.num_heads, queries.q, queries.cos_sin);
  project(stream, indexer.head_weights, num_tokens, queries.x, queries.head_weights);
  // The scale of the scores does not change their order: the 1 / sqrt of heads and channels is left out.
  kernels::index_select(stream, {.q = queries.q,
                                 .weights = queries.head_weights,
                                 .num_heads = shape.num_heads,
                                 .head_dim = shape.head_dim,
                                 .keys = cache.entries(),
                                 .cu_seqlens = queries.batch.cu_seqlens,
                                 .block_tables = queries.batch.block_tables,
                                 .max_blocks_per_row = queries.batch.max_blocks_per_row,
                                 .num_visible = queries.num_visible,
                                 .top_k = shape.top_k,
                                 .lists = queries.lists});
}

}  // namespace thalweg::models::deepseek_v3
