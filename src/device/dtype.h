// Element types of tensors, plain and block-quantised.
#pragma once

#include <cstdint>
#include <string_view>

namespace thalweg::device {

/// Block-quantised types are GGML's, laid out as in a GGUF file. kF8E4M3 and kF4E2M1 are OCP's without scales; whoever
/// holds such a tensor holds its scales beside it, often as kF8E8M0. Of the two codes in a byte of kF4E2M1 the low half
/// comes first.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E8M0,
  kF4E2M1,
  kI8,
  kI32,
  kI64,
  kU8,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

/// Elements stored together and the bytes they take; {1, size} for plain types.
struct BlockLayout {
  std::int32_t num_elements;
  std::int32_t num_bytes;
};

BlockLayout block_layout(DType dtype);
std::string_view dtype_name(DType dtype);

/// Bytes of one row of `num_cols` elements. Precondition: whole blocks.
inline std::int64_t row_bytes(DType dtype, std::int64_t num_cols) {
  const BlockLayout layout = block_layout(dtype);
  return num_cols / layout.num_elements * layout.num_bytes;
}

}  // namespace thalweg::device
