#include "models/deepseek_v3/mla.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/quant/quant.h"

namespace thalweg::models::deepseek_v3 {
namespace {

/// Of the norms inside the attention; config.json's rms_norm_eps is that of the others.
constexpr float kLatentNormEpsilon = 1e-6F;

/// A matrix that is not in the file as it is needed, kept with the precision that the file's has.
kernels::LinearWeight pack_values(device::Stream& stream, std::span<const float> values, std::int64_t num_rows,
                                  std::int64_t num_cols, device::DType stored) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  const bool is_f32 = stored == device::DType::kF32;
  const bool is_f16 = stored == device::DType::kF16;
  const kernels::QuantFormat format = is_f32   ? kernels::QuantFormat::kF32
                                      : is_f16 ? kernels::QuantFormat::kF16
                                               : kernels::QuantFormat::kBF16;
  kernels::quantize_row(format, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
  const kernels::StoredMatrix matrix{.dtype = is_f32 || is_f16 ? stored : device::DType::kBF16,
                                     .data = bytes.data(),
                                     .num_rows = num_rows,
                                     .num_cols = num_cols};
  Result<kernels::LinearWeight> packed = kernels::LinearWeight::pack(stream, {&matrix, 1});
  CHECK(packed.has_value());  // plain floats of a shape that was checked
  return std::move(*packed);
}

/// kv_b_proj, [num_heads * (nope + value), kv_lora_rank], divided by head and purpose.
void load_latent_projections(layers::WeightReader& reader, device::Stream& stream, const std::string& name,
                             Mla& layer) {
  const MlaShape& shape = layer.shape;
  const std::int64_t rank = shape.kv_lora_rank;
  const std::int64_t rows_per_head = std::int64_t{shape.nope_dim} + shape.value_dim;
  const std::vector<float> all = reader.floats(name + ".weight", {shape.num_heads * rows_per_head, rank});
  if (all.empty()) return;
  const device::DType stored = reader.checkpoint().find(name + ".weight")->dtype;
  std::vector<float> transposed(static_cast<std::size_t>(rank * shape.nope_dim));
  for (std::int32_t head = 0; head < shape.num_heads; ++head) {
    const float* keys = all.data() + head * rows_per_head * rank;
    for (std::int64_t row = 0; row < shape.nope_dim; ++row) {
      for (std::int64_t col = 0; col < rank; ++col) {
        transposed[static_cast<std::size_t>(col * shape.nope_dim + row)] = keys[row * rank + col];
      }
    }
    const std::span<const float> values(keys + shape.nope_dim * rank, static_cast<std::size_t>(shape.value_dim * rank));
    layer.absorb_key.push_back(pack_values(stream, transposed, rank, shape.nope_dim, stored));
    layer.to_value.push_back(pack_values(stream, values, shape.value_dim, rank, stored));
  }
}

/// out[t] = one head's slice of x times its weight; strides in elements.
void project_heads(device::Stream& stream, std::span<const kernels::LinearWeight> weights, std::int64_t num_tokens,
                   const float* x, std::int64_t x_head_stride, float* out, std::int64_t out_head_stride) {
  const auto num_heads = static_cast<std::int64_t>(weights.size());
  for (std::int64_t head = 0; head < num_heads; ++head) {
    kernels::linear(stream, {.x = x + head * x_head_stride,
                             .x_stride = num_heads * x_head_stride,
                             .num_tokens = num_tokens,
                             .weight = &weights[static_cast<std::size_t>(head)],
                             .out = out + head * out_head_stride,
                             .out_stride = num_heads * out_head_stride});
  }
}

void project(device::Stream& stream, const kernels::LinearWeight& weight, std::int64_t num_tokens, const float* x,
             float* out, kernels::Epilogue epilogue = kernels::Epilogue::kStore) {
  kernels::linear(stream, {.x = x,
                           .x_stride = weight.num_cols(),
                           .num_tokens = num_tokens,
                           .weight = &weight,
                           .out = out,
                           .out_stride = weight.num_rows(),
                           .epilogue = epilogue});
}

}  // namespace

Mla load_mla(layers::WeightReader& reader, device::Stream& stream, const std::string& prefix, const Config& config) {
  const MlaShape& shape = config.attention;
  Mla layer;
  layer.shape = shape;
  layer.scale = config.attention_scale;
  layer.pairing = config.rope_pairing;
  if (shape.q_lora_rank > 0) {
    layer.q_a = reader.linear(prefix + "q_a_proj", shape.q_lora_rank, shape.hidden_size);
    layer.q_norm = layers::load_norm(reader, prefix + "q_a_layernorm", shape.q_lora_rank, kLatentNormEpsilon);
    layer.q_b = reader.linear(prefix + "q_b_proj", shape.q_size(), shape.q_lora_rank);
  } else {
    layer.q_b = reader.linear(prefix + "q_proj", shape.q_size(), shape.hidden_size);
  }
  layer.kv_a = reader.linear(prefix + "kv_a_proj_with_mqa", shape.row_dim(), shape.hidden_size);
  layer.kv_norm = layers::load_norm(reader, prefix + "kv_a_layernorm", shape.kv_lora_rank, kLatentNormEpsilon);
  load_latent_projections(reader, stream, prefix + "kv_b_proj", layer);
  layer.out = reader.linear(prefix + "o_proj", shape.hidden_size, shape.value_size());
  return layer;
}

void write_latents(device::Stream& stream, const Mla& layer, const kernels::PagedRows& cache,
                   const kernels::PagedBatch& batch, const float* x, const float* cos_sin, float* rows) {
  const MlaShape& shape = layer.shape;
  const auto num_tokens = static_cast<std::int64_t>(batch.positions.size());
  project(stream, layer.kv_a, num_tokens, x, rows);
  kernels::rms_norm(stream, {.x = rows,
                             .x_stride = shape.row_dim(),
                             .num_rows = num_tokens,
                             .num_cols = shape.kv_lora_rank,
                             .weight = layer.kv_norm.weight.data(),
                             .epsilon = layer.kv_norm.epsilon,
                             .out = rows,
                             .out_stride = shape.row_dim()});
  kernels::rope(stream, {.x = rows + shape.kv_lora_rank,
                         .x_stride = shape.row_dim(),
                         .num_tokens = num_tokens,
                         .num_heads = 1,
                         .head_dim = shape.rope_dim,
                         .rope_dim = shape.rope_dim,
                         .pairing = layer.pairing,
                         .cos_sin = cos_sin});
  kernels::write_rows(stream, cache, batch, rows);
}

const float* query_input(device::Stream& stream, const Mla& layer, std::int64_t num_tokens, const float* x,
                         float* bottleneck) {
  if (layer.shape.q_lora_rank == 0) return x;
  project(stream, layer.q_a, num_tokens, x, bottleneck);
  layers::norm(stream, layer.q_norm, num_tokens, bottleneck, bottleneck);
  return bottleneck;
}

void absorbed_queries(device::Stream& stream, const Mla& layer, std::int64_t num_tokens, const float* input,
                      const float* cos_sin, float* q, float* absorbed) {
  const MlaShape& shape = layer.shape;
  project(stream, layer.q_b, num_tokens, input, q);
  kernels::rope(stream, {.x = q + shape.nope_dim,
                         .x_stride = shape.q_size(),
                         .num_tokens = num_tokens,
                         .num_heads = shape.num_heads,
                         .head_dim = static_cast<std::int32_t>(shape.qk_dim()),
                         .rope_dim = shape.rope_dim,
                         .pairing = layer.pairing,
                         .cos_sin = cos_sin});
  project_heads(stream, layer.absorb_key, num_tokens, q, shape.qk_dim(), absorbed, shape.row_dim());
  stream.threads->parallel_for(num_tokens, [&](std::int64_t token, int) {
    for (std::int64_t head = token * shape.num_heads; head < (token + 1) * shape.num_heads; ++head) {
      std::copy_n(q + head * shape.qk_dim() + shape.nope_dim, shape.rope_dim,
                  absorbed + head * shape.row_dim() + shape.kv_lora_rank);
    }
  });
}

void add_output(device::Stream& stream, const Mla& layer, std::int64_t num_tokens, const float* latents, float* values,
                float* residual) {
  const MlaShape& shape = layer.shape;
  project_heads(stream, layer.to_value, num_tokens, latents, shape.kv_lora_rank, values, shape.value_dim);
  project(stream, layer.out, num_tokens, values, residual, kernels::Epilogue::kAccumulate);
}

}  // namespace thalweg::models::deepseek_v3
