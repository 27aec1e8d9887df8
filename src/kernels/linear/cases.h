// Shapes and random weights that tests and benches share.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "device/dtype.h"
#include "device/float_types.h"
#include "kernels/linear/linear.h"

namespace thalweg::kernels {

inline constexpr device::DType kWeightTypes[] = {
    device::DType::kF32,  device::DType::kF16,  device::DType::kBF16, device::DType::kF8E4M3,
    device::DType::kQ4_0, device::DType::kQ4_1, device::DType::kQ5_0, device::DType::kQ5_1,
    device::DType::kQ8_0, device::DType::kQ4_K, device::DType::kQ5_K, device::DType::kQ6_K,
};

/// A matrix with its memory.
struct RandomMatrix {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  StoredMatrix stored;
};

/// Byte positions of the f16 fields of a block.
inline std::vector<int> f16_fields(device::DType dtype) {
  switch (dtype) {
    case device::DType::kQ4_0:
    case device::DType::kQ5_0:
    case device::DType::kQ8_0:
      return {0};
    case device::DType::kQ4_1:
    case device::DType::kQ5_1:
    case device::DType::kQ4_K:
    case device::DType::kQ5_K:
      return {0, 2};
    case device::DType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

/// Random codes of the type; scales are such that weights stay near one.
inline RandomMatrix random_matrix(device::DType dtype, std::int64_t num_rows, std::int64_t num_cols,
                                  std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  RandomMatrix matrix;
  matrix.bytes.resize(static_cast<std::size_t>(num_rows * device::row_bytes(dtype, num_cols)));
  const auto put = [&matrix](std::size_t at, auto value) { std::memcpy(&matrix.bytes[at], &value, sizeof(value)); };
  const device::BlockLayout layout = device::block_layout(dtype);
  for (std::size_t at = 0; at < matrix.bytes.size(); at += static_cast<std::size_t>(layout.num_bytes)) {
    switch (dtype) {
      case device::DType::kF32:
        put(at, uniform(random));
        break;
      case device::DType::kF16:
        put(at, device::f16_from_float(uniform(random)));
        break;
      case device::DType::kBF16:
        put(at, device::bf16_from_float(uniform(random)));
        break;
      case device::DType::kF8E4M3:
        put(at, static_cast<std::uint8_t>((random() & 0x80U) | (random() % 0x40U)));
        break;
      default:
        for (int i = 0; i < layout.num_bytes; ++i)
          put(at + static_cast<std::size_t>(i), static_cast<std::uint8_t>(random()));
        for (const int field : f16_fields(dtype)) {
          put(at + static_cast<std::size_t>(field), device::f16_from_float(uniform(random) * 0.01F));
        }
    }
  }
  matrix.stored = {dtype, matrix.bytes.data(), num_rows, num_cols};
  if (dtype == device::DType::kF8E4M3) {
    constexpr std::int64_t kBlock = 128;
    matrix.scales.resize(
        static_cast<std::size_t>((num_rows + kBlock - 1) / kBlock * ((num_cols + kBlock - 1) / kBlock)));
    for (float& scale : matrix.scales) scale = 0.5F + std::fabs(uniform(random));
    matrix.stored.scales = {device::DType::kF32, reinterpret_cast<const std::byte*>(matrix.scales.data()), kBlock,
                            kBlock};
  }
  return matrix;
}

/// Mostly near one, a few outliers, as activations are.
inline std::vector<float> random_activations(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random) * (random() % 64 == 0 ? 12.0F : 1.0F);
  return values;
}

/// The products of one layer of a 135M-parameter Llama and its head.
struct ModelShape {
  const char* name;
  std::int64_t num_rows;
  std::int64_t num_cols;
  device::DType dtype;
  Epilogue epilogue;
};
inline constexpr ModelShape kModelShapes[] = {
    {"qkv", 960, 576, device::DType::kQ4_1, Epilogue::kStore},
    {"o", 576, 576, device::DType::kQ4_1, Epilogue::kAccumulate},
    {"gate_up", 3072, 576, device::DType::kQ4_1, Epilogue::kSiluMul},
    {"down", 576, 1536, device::DType::kQ4_1, Epilogue::kAccumulate},
    {"head", 49152, 576, device::DType::kQ8_0, Epilogue::kStore},
};

}  // namespace thalweg::kernels
