#include "layers/attention.h"

#include "kernels/rope/rope.h"

namespace thalweg::layers {
namespace {

/// For each row in halves order, where it lies in a file that pairs neighbours.
std::vector<std::int32_t> rows_of_interleaved(std::int32_t num_heads, std::int32_t head_dim) {
  std::vector<std::int32_t> rows;
  rows.reserve(static_cast<std::size_t>(num_heads) * head_dim);
  for (std::int32_t head = 0; head < num_heads; ++head) {
    for (std::int32_t half = 0; half < 2; ++half) {
      for (std::int32_t pair = 0; pair < head_dim / 2; ++pair) rows.push_back(head * head_dim + 2 * pair + half);
    }
  }
  return rows;
}

}  // namespace

Attention load_attention(WeightReader& reader, const AttentionNames& names, const AttentionShape& shape,
                         const AttentionFeatures& features) {
  std::vector<std::int32_t> q_rows;
  std::vector<std::int32_t> k_rows;
  if (features.interleaved_rotary_rows) {
    q_rows = rows_of_interleaved(shape.num_heads, shape.head_dim);
    k_rows = rows_of_interleaved(shape.num_kv_heads, shape.head_dim);
  }
  const MatrixPart q{names.q, shape.q_size(), q_rows};
  const MatrixPart k{names.k, shape.kv_size(), k_rows};
  const MatrixPart v{names.v, shape.kv_size()};
  const MatrixPart out{names.out, shape.hidden_size};

  Attention layer;
  layer.shape = shape;
  layer.qkv = reader.linear({q, k, v}, shape.hidden_size);
  if (features.qkv_bias) layer.qkv_bias = reader.biases({q, k, v});
  if (features.head_norms) {
    layer.q_norm = load_norm(reader, names.q_norm, shape.head_dim, features.head_norm_epsilon);
    layer.k_norm = load_norm(reader, names.k_norm, shape.head_dim, features.head_norm_epsilon);
  }
  layer.out = reader.linear({out}, shape.q_size());
  if (features.out_bias) layer.out_bias = reader.biases({out});
  return layer;
}

void project_qkv(device::Stream& stream, const Attention& layer, const kernels::PagedKv& cache,
                 const kernels::PagedBatch& batch, const float* x, const float* cos_sin, float* qkv) {
  const AttentionShape& shape = layer.shape;
  const auto num_tokens = static_cast<std::int64_t>(batch.positions.size());
  const std::int64_t stride = shape.qkv_size();
  float* k = qkv + shape.q_size();
  kernels::linear(stream, {.x = x,
                           .x_stride = shape.hidden_size,
                           .num_tokens = num_tokens,
                           .weight = &layer.qkv,
                           .bias = layer.qkv_bias.empty() ? nullptr : layer.qkv_bias.data(),
                           .out = qkv,
                           .out_stride = stride});
  if (!layer.q_norm.weight.empty()) head_norm(stream, layer.q_norm, num_tokens, shape.num_heads, qkv, stride);
  if (!layer.k_norm.weight.empty()) head_norm(stream, layer.k_norm, num_tokens, shape.num_kv_heads, k, stride);
  // Keys follow queries in a row, so one call rotates both.
  kernels::rope(stream, {.x = qkv,
                         .x_stride = stride,
                         .num_tokens = num_tokens,
                         .num_heads = shape.num_heads + shape.num_kv_heads,
                         .head_dim = shape.head_dim,
                         .rope_dim = shape.head_dim,
                         .pairing = kernels::RopePairing::kHalves,
                         .cos_sin = cos_sin});
  kernels::write_kv(stream, cache, batch, k, stride, k + shape.kv_size(), stride);
}

void attend(device::Stream& stream, const Attention& layer, const kernels::PagedKv& cache,
            const kernels::PagedBatch& batch, const float* qkv, float* attended) {
  kernels::paged_attention(stream, {.q = qkv,
                                    .q_stride = layer.shape.qkv_size(),
                                    .num_heads = layer.shape.num_heads,
                                    .cache = cache,
                                    .batch = batch,
                                    .scale = layer.scale,
                                    .window = layer.window,
                                    .out = attended,
                                    .out_stride = layer.shape.q_size()});
}

void project_out(device::Stream& stream, const Attention& layer, std::int64_t num_tokens, const float* attended,
                 kernels::Epilogue epilogue, float* out) {
  kernels::linear(stream, {.x = attended,
                           .x_stride = layer.shape.q_size(),
                           .num_tokens = num_tokens,
                           .weight = &layer.out,
                           .bias = layer.out_bias.empty() ? nullptr : layer.out_bias.data(),
                           .out = out,
                           .out_stride = layer.shape.hidden_size,
                           .epilogue = epilogue});
}

}  // namespace thalweg::layers
