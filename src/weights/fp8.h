// Block-quantised FP8 and FP4 weights of Hugging Face folders: a scale per block beside each weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
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

/// Scales by which a matrix's elements are multiplied, [ceil(rows / block.rows), ceil(cols / block.cols)].
struct BlockScales {
  Fp8Block block;
  std::vector<float> values;         // of scales stored as F32 or BF16
  std::span<const std::byte> bytes;  // of F8_E8M0 as they lie in the file: values is empty
};

/// Of a matrix in F8_E4M3, in the blocks of config.json, or of FP4 codes, two in a byte of I8, in blocks of 1 x 32. The
/// tensor `scales` must have the shape that the weight needs and finite values.
Result<BlockScales> read_block_scales(const Checkpoint& checkpoint, const TensorInfo& weight, const TensorInfo& scales);

}  // namespace thalweg::weights
