// What dispatch.cc hands to one version: plain pointers, one tile of entries. Files compiled for a wide instruction set
// include this and no standard header with code in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/quant.h"

namespace thalweg::kernels::index {

inline constexpr std::int32_t kTileEntries = 32;
inline constexpr std::int32_t kGroup = 32;         // channels that share a scale of kF4Block32
inline constexpr std::int32_t kWordsPerGroup = 8;  // of four channels

/// The query in whole numbers, for keys of kF4Block32: twice the value of an E2M1 code is a whole number of at most 12,
/// so the product of two groups is one of at most 4608, exact in 16 bits. Group g of head h is at index
/// h * (head_dim / kGroup) + g.
struct QueryCodes {
  /// Twice the codes plus 12, one per byte: kWordsPerGroup words of each group. Word 2w holds channels 8w, 8w + 2, 8w +
  /// 4 and 8w + 6, word 2w + 1 the odd ones, as the nibbles of four stored bytes lie.
  const std::uint32_t* words = nullptr;
  const float* scales = nullptr;  // a quarter of the scale: both factors are doubled
};

/// Scores of one query. A dot product is summed per group of kGroup channels, then over rising groups; the rest of a
/// group's arithmetic is exact where codes are FP4, so that there all versions agree bit for bit.
struct ScoreArgs {
  const float* q = nullptr;        // [num_heads, head_dim]
  QueryCodes codes;                // the same, for versions that take it so
  const float* weights = nullptr;  // [num_heads]
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  QuantFormat format = QuantFormat::kF4Block32;
  const std::byte* const* keys = nullptr;  // [kTileEntries] stored rows, all readable
  bool rounds_bf16 = false;
  float* scores = nullptr;  // [kTileEntries]
};

using Score = void(const ScoreArgs& args);

Score score_reference;
Score score_avx2;  // kF4Block32, head_dim at most kMaxCodedDim

inline constexpr std::int32_t kMaxCodedDim = 256;

}  // namespace thalweg::kernels::index
