// Block-quantised FP8 weights of Hugging Face folders: a scale per block beside each weight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::weights {

/// Elements that share a scale.
struct Fp8Block {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// What config.json says of quantisation: empty for plain weights, an error for a method other than block FP8.
Result<std::optional<Fp8Block>> fp8_block(const Checkpoint& checkpoint);

/// The scales of an F8_E4M3 matrix, [ceil(rows / block.rows), ceil(cols / block.cols)], by which elements
/// are multiplied. From the tensor "<name>_scale_inv", which must have that shape and finite values.
Result<std::vector<float>> fp8_block_scales(const Checkpoint& checkpoint, const TensorInfo& weight);

}  // namespace thalweg::weights
