#include "layers/gated_mlp.h"

namespace thalweg::layers {

GatedMlp load_gated_mlp(WeightReader& reader, const GatedMlpNames& names, std::int64_t hidden_size,
                        std::int64_t intermediate_size, kernels::Epilogue activation, bool with_bias) {
  const MatrixPart gate{names.gate, intermediate_size};
  const MatrixPart up{names.up, intermediate_size};
  const MatrixPart down{names.down, hidden_size};

  GatedMlp layer;
  layer.activation = activation;
  layer.gate_up = reader.linear({gate, up}, hidden_size, kernels::RowOrder::kInterleave);
  layer.down = reader.linear({down}, intermediate_size);
  if (with_bias) {
    layer.gate_up_bias = reader.biases({gate, up}, kernels::RowOrder::kInterleave);
    layer.down_bias = reader.biases({down});
  }
  return layer;
}

void gated_mlp(device::Stream& stream, const GatedMlp& layer, std::int64_t num_tokens, const float* x, float* inner,
               kernels::Epilogue epilogue, float* out) {
  const std::int64_t hidden_size = layer.gate_up.num_cols();
  const std::int64_t intermediate_size = layer.down.num_cols();
  kernels::linear(stream, {.x = x,
                           .x_stride = hidden_size,
                           .num_tokens = num_tokens,
                           .weight = &layer.gate_up,
                           .bias = layer.gate_up_bias.empty() ? nullptr : layer.gate_up_bias.data(),
                           .out = inner,
                           .out_stride = intermediate_size,
                           .epilogue = layer.activation});
  kernels::linear(stream, {.x = inner,
                           .x_stride = intermediate_size,
                           .num_tokens = num_tokens,
                           .weight = &layer.down,
                           .bias = layer.down_bias.empty() ? nullptr : layer.down_bias.data(),
                           .out = out,
                           .out_stride = hidden_size,
                           .epilogue = epilogue});
}

}  // namespace thalweg::layers
