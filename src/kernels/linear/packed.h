// How packed weights lie in memory, and what crosses into the files of one instruction set. Plain structs only: those
// files must not instantiate code that other files share.
//
// Rows are taken in tiles of 16, the last one padded with zero weights. A tile holds
//
//   float codings      weight [num_cols][16 rows], as stored
//   kQ4*, kQ8*         superblocks [num_cols / 256]: f16 d[16] (, f16 m[16])      K-quants only
//                      groups [num_cols / 32]: the scales of 16 rows, see Coding
//                      (padding to 64 bytes)
//                      codes [num_cols / 32]: 256 bytes (4 bits) or 512 bytes (8 bits) per group
//
// Codes come in words of 4 consecutive columns of one row; 16 words, one per row, make a 64-byte line. An 8-bit group
// is 8 such lines for columns 0-3, 4-7, ..., 28-31. A 4-bit group is 4 lines: line j holds columns 4j .. 4j+3 in the
// low and columns 16+4j .. 16+4j+3 in the high halves of its bytes. One line is one AVX-512 or two AVX2 registers and
// meets a broadcast word of 4 activations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/epilogue.h"

namespace thalweg::kernels {

inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kGroupCols = 32;
inline constexpr std::int64_t kSuperCols = 256;

/// What a weight w is, from its code q and the scales of its group.
enum class Coding : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4ScaleMin,      // w = s q + m; q in [0, 15]; group: f16 s[16], f16 m[16]
  kQ4Super,         // w = d s q + m' m; group: u8 s[16], u8 m[16]; superblock: f16 d[16], f16 m'[16]
  kQ8Scale,         // w = s q; q int8; group: f16 s[16]
  kQ8ScaleMin,      // w = s q + m; group: f16 s[16], f16 m[16]
  kQ8Super,         // w = d s q + m' m; as kQ4Super
  kQ8SuperScale16,  // w = d s[column / 16] q; group: int8 s0[16], int8 s1[16]; superblock: f16 d[16]
};
inline constexpr int kNumCodings = 9;

/// Rows of one coding within a LinearWeight. Offsets inside a tile are those of the picture above.
struct PackedPart {
  Coding coding = Coding::kF32;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  std::int64_t num_tiles = 0;
  std::int64_t offset = 0;  // of the first tile in the storage
  std::int64_t tile_bytes = 0;
  std::int64_t groups_offset = 0;
  std::int64_t codes_offset = 0;
};

/// 32 quantised activations of a token: a = scale * q.
struct ActivationGroup {
  float scale;
  float sum;                // scale * (sum of q)
  std::int32_t offsets[2];  // -128 * (sum of q) of columns 0-15 and 16-31: what codes shifted by 128 add too much
};

/// A product of one part with all tokens of a call.
struct Product {
  PackedPart part;
  const std::byte* tiles = nullptr;  // first tile of the part
  const float* x = nullptr;          // float codings
  std::int64_t x_stride = 0;
  const std::int8_t* codes = nullptr;       // quantised codings, [num_tokens, num_cols]
  const ActivationGroup* groups = nullptr;  // [num_tokens, num_cols / 32]
  const float* bias = nullptr;              // of the whole weight
  float* out = nullptr;
  std::int64_t out_stride = 0;
  Epilogue epilogue = Epilogue::kStore;
};

/// One implementation of the numeric contract in linear.h.
struct LinearVersion {
  const char* name;
  /// Quantises one row of activations; num_cols is a multiple of 32.
  void (*quantize)(const float* x, std::int64_t num_cols, std::int8_t* codes, ActivationGroup* groups);
  /// Computes tiles [first_tile, last_tile) for tokens [first_token, last_token). `scratch` belongs to the thread and
  /// holds product_scratch_bytes(num_cols).
  void (*product)(const Product& product, std::int64_t first_tile, std::int64_t last_tile, std::int64_t first_token,
                  std::int64_t last_token, std::byte* scratch);
};

const LinearVersion& reference_version();
#if defined(__x86_64__)
const LinearVersion& avx2_version();
const LinearVersion& avx512_version();
const LinearVersion& avx512_vnni_version();
#endif

/// Room for one tile with 8-bit codes and fp32 scales.
std::int64_t product_scratch_bytes(std::int64_t num_cols);

}  // namespace thalweg::kernels
