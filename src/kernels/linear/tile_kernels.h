// Products of 16-row tiles, written once for all instruction sets.
//
// Included by the files of one instruction set only, after they define `struct Isa`; everything here has internal
// linkage, so that no other file shares code compiled for that set. Isa offers, for 16 rows at a time:
//
//   F                       16 floats                 W      16 words of 4 codes
//   Sum4, Sum8              running integer dot products with 4-bit and 8-bit codes
//   kTokens4, kTokens8, kTokensF   tokens computed together, what the registers hold
//
// and the functions used below. The order of every sum is that of reference.cc.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/always_inline.h"
#include "kernels/linear/packed.h"

namespace thalweg::kernels {
namespace {

using F = Isa::F;
using W = Isa::W;

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kGroupsPerSuper = kSuperCols / kGroupCols;
// Far enough ahead to cover the latency of memory, near enough to stay in the first-level cache.
constexpr std::int64_t kPrefetchBytes = 2048;

// ---- Activations to int8. ----

THALWEG_INLINE __m256i magnitudes(const float* x) {
  return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x)), _mm256_set1_epi32(0x7fffffff));
}

THALWEG_INLINE std::uint32_t largest(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
}

THALWEG_INLINE __m256i rounded(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

THALWEG_INLINE std::int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

void quantize(const float* x, std::int64_t num_cols, std::int8_t* codes, ActivationGroup* groups) {
  constexpr std::uint32_t kInfinity = 0x7f800000U;
  constexpr float kSmallestMax = 1e-30F;
  for (std::int64_t g = 0; g < num_cols / kGroupCols; ++g, x += kGroupCols, codes += kGroupCols) {
    const __m256i m01 = _mm256_max_epu32(magnitudes(x), magnitudes(x + 8));
    const __m256i m23 = _mm256_max_epu32(magnitudes(x + 16), magnitudes(x + 24));
    const std::uint32_t max_bits = largest(_mm256_max_epu32(m01, m23));
    float max;
    __builtin_memcpy(&max, &max_bits, sizeof(max));
    ActivationGroup& group = groups[g];
    if (max_bits >= kInfinity || max < kSmallestMax) [[unlikely]] {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_setzero_si256());
      group.scale = group.sum = max_bits >= kInfinity ? __builtin_nanf("") : 0.0F;
      group.offsets[0] = group.offsets[1] = 0;
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(127.0F / max);
    const __m256i a = rounded(x, inverse);
    const __m256i b = rounded(x + 8, inverse);
    const __m256i c = rounded(x + 16, inverse);
    const __m256i d = rounded(x + 24, inverse);
    // Packing works within 128-bit halves; the permutation puts the words back in order.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_permutevar8x32_epi32(bytes, order));
    const std::int32_t low = sum_of(_mm256_add_epi32(a, b));
    const std::int32_t high = sum_of(_mm256_add_epi32(c, d));
    group.scale = max / 127.0F;
    group.sum = group.scale * static_cast<float>(low + high);
    group.offsets[0] = -128 * low;
    group.offsets[1] = -128 * high;
  }
}

// ---- Epilogues. ----

// As exponential() of reference.cc; NaN passes through because it is the second operand of min and max.
THALWEG_INLINE __m256 exponential(__m256 x) {
  const auto constant = [](float value) { return _mm256_set1_ps(value); };
  x = _mm256_min_ps(constant(88.0F), _mm256_max_ps(constant(-87.0F), x));
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, constant(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, constant(-0.693359375F), x);
  r = _mm256_fmadd_ps(n, constant(2.12194440e-4F), r);
  __m256 p = constant(1.0F / 5040.0F);
  p = _mm256_fmadd_ps(p, r, constant(1.0F / 720.0F));
  p = _mm256_fmadd_ps(p, r, constant(1.0F / 120.0F));
  p = _mm256_fmadd_ps(p, r, constant(1.0F / 24.0F));
  p = _mm256_fmadd_ps(p, r, constant(1.0F / 6.0F));
  p = _mm256_fmadd_ps(p, r, constant(0.5F));
  p = _mm256_fmadd_ps(p, r, constant(1.0F));
  p = _mm256_fmadd_ps(p, r, constant(1.0F));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

THALWEG_INLINE __m256 gated(Epilogue epilogue, __m256 gate, __m256 up) {
  const __m256 one = _mm256_set1_ps(1.0F);
  __m256 argument;
  if (epilogue == Epilogue::kSiluMul) {
    argument = _mm256_xor_ps(gate, _mm256_set1_ps(-0.0F));
  } else {
    const __m256 cubic =
        _mm256_fmadd_ps(_mm256_mul_ps(gate, gate), _mm256_mul_ps(_mm256_set1_ps(0.044715F), gate), gate);
    argument = _mm256_mul_ps(cubic, _mm256_set1_ps(-1.59576912F));
  }
  return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(one, exponential(argument))), up);
}

THALWEG_INLINE __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

THALWEG_INLINE __m256 load_first(const float* from, std::int64_t count) {
  return count >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, first_lanes(count));
}

THALWEG_INLINE void store_first(float* to, std::int64_t count, __m256 value) {
  if (count >= 8) {
    _mm256_storeu_ps(to, value);
  } else {
    _mm256_maskstore_ps(to, first_lanes(count), value);
  }
}

// Where one tile's results go: `num_rows` of its 16 rows exist.
struct Target {
  std::int64_t first_row;  // of the whole weight
  std::int64_t num_rows;
};

THALWEG_INLINE Target target_of(const PackedPart& part, std::int64_t tile) {
  const std::int64_t row = tile * kTileRows;
  const std::int64_t rows_left = part.num_rows - row;
  return {part.first_row + row, rows_left < kTileRows ? rows_left : kTileRows};
}

THALWEG_INLINE void finish(const Product& product, const Target& target, std::int64_t token, F y) {
  float* out = product.out + token * product.out_stride;
  __m256 low = Isa::low_half(y);
  __m256 high = Isa::high_half(y);
  const std::int64_t num_high = target.num_rows - 8;
  if (product.bias != nullptr) {
    const float* bias = product.bias + target.first_row;
    low = _mm256_add_ps(low, load_first(bias, target.num_rows));
    if (num_high > 0) high = _mm256_add_ps(high, load_first(bias + 8, num_high));
  }
  if (product.epilogue >= Epilogue::kSiluMul) {
    // g0 u0 g1 u1 | g2 u2 g3 u3, g4 ... becomes g0 g1 g4 g5 | g2 g3 g6 g7, then ascending.
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    const __m256 gate = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(low, high, 0x88), order);
    const __m256 up = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(low, high, 0xdd), order);
    store_first(out + target.first_row / 2, target.num_rows / 2, gated(product.epilogue, gate, up));
    return;
  }
  out += target.first_row;
  if (product.epilogue == Epilogue::kAccumulate) {
    low = _mm256_add_ps(load_first(out, target.num_rows), low);
    if (num_high > 0) high = _mm256_add_ps(load_first(out + 8, num_high), high);
  }
  store_first(out, target.num_rows, low);
  if (num_high > 0) store_first(out + 8, num_high, high);
}

// One loop for all tokens, not unrolled: epilogues are long and run once per sum.
template <int kTokens>
THALWEG_INLINE void finish_all(const Product& product, const Target& target, std::int64_t token, const F* y) {
  F copies[kTokens];  // indexed at run time, which y must not be if it is to stay in registers before
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) copies[t] = y[t];
#pragma GCC unroll 1
  for (int t = 0; t < kTokens; ++t) finish(product, target, token + t, copies[t]);
}

// ---- Scales of a group. ----

struct Scales {
  F scale;
  F min;
};

template <Coding kCoding>
constexpr bool kHasMin = kCoding == Coding::kQ4ScaleMin || kCoding == Coding::kQ4Super ||
                         kCoding == Coding::kQ8ScaleMin || kCoding == Coding::kQ8Super;

// Reads the scales of group g of a packed tile.
template <Coding kCoding>
THALWEG_INLINE Scales packed_scales(const PackedPart& part, const std::byte* tile, std::int64_t g) {
  const std::byte* groups = tile + part.groups_offset;
  if constexpr (kCoding == Coding::kQ8Scale) {
    return {Isa::load_f16(groups + g * 32), Isa::zero()};
  } else if constexpr (kCoding == Coding::kQ4ScaleMin || kCoding == Coding::kQ8ScaleMin) {
    return {Isa::load_f16(groups + g * 64), Isa::load_f16(groups + g * 64 + 32)};
  } else if constexpr (kCoding == Coding::kQ4Super || kCoding == Coding::kQ8Super) {
    const std::byte* super = tile + g / kGroupsPerSuper * 64;
    return {Isa::multiply(Isa::load_f16(super), Isa::float_from_u8(groups + g * 32)),
            Isa::multiply(Isa::load_f16(super + 32), Isa::float_from_u8(groups + g * 32 + 16))};
  } else {
    return {Isa::load_f16(tile + g / kGroupsPerSuper * 32), Isa::zero()};
  }
}

// ---- Weights with 4 bits. ----

THALWEG_INLINE std::int32_t word_at(const std::int8_t* codes) {
  std::int32_t word;
  __builtin_memcpy(&word, codes, sizeof(word));
  return word;
}

// A packed tile, its codes split into nibbles on the way.
template <Coding kCoding>
struct PackedNibbles {
  const PackedPart& part;
  const std::byte* tile;

  // Calls use(word index, codes) for the 8 words of columns of group g.
  template <typename Use>
  THALWEG_INLINE void for_each_word(std::int64_t g, Use&& use) const {
    const std::byte* lines = tile + part.codes_offset + g * 4 * kLine;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const W both = Isa::load_words(lines + j * kLine);
      use(j, Isa::low_nibbles(both));
      use(j + 4, Isa::high_nibbles(both));
    }
    // The next tile follows this one in memory, so reading ahead does not stop at its end.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(lines + kPrefetchBytes + j * kLine), _MM_HINT_T0);
    }
  }
  THALWEG_INLINE Scales scales(std::int64_t g) const { return packed_scales<kCoding>(part, tile, g); }
};

// A tile unpacked into scratch: lines of 8-bit codes, then fp32 scales and minima. With kReadsAhead the next tile comes
// nearer meanwhile, as unpacking reads memory and multiplying does not.
template <bool kReadsAhead>
struct UnpackedNibbles {
  const std::byte* lines;
  const std::byte* group_scales;
  const std::byte* next;
  std::int64_t next_bytes_per_group;

  template <typename Use>
  THALWEG_INLINE void for_each_word(std::int64_t g, Use&& use) const {
    if constexpr (kReadsAhead) {
      const std::byte* from = next + g * next_bytes_per_group;
      for (std::int64_t i = 0; i < next_bytes_per_group; i += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T1);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) use(j, Isa::load_words(lines + (g * 8 + j) * kLine));
  }
  THALWEG_INLINE Scales scales(std::int64_t g) const {
    return {Isa::load_f32(group_scales + g * 2 * kLine), Isa::load_f32(group_scales + g * 2 * kLine + kLine)};
  }
};

template <Coding kCoding>
void unpack(const PackedPart& part, const std::byte* tile, std::byte* scratch) {
  const PackedNibbles<kCoding> packed{part, tile};
  const std::int64_t num_groups = part.num_cols / kGroupCols;
  std::byte* group_scales = scratch + num_groups * 8 * kLine;
  for (std::int64_t g = 0; g < num_groups; ++g) {
    std::byte* lines = scratch + g * 8 * kLine;
    packed.for_each_word(g, [lines](int j, W words) { Isa::store_words(lines + j * kLine, words); });
    const Scales scales = packed.scales(g);
    Isa::store_f32(group_scales + g * 2 * kLine, scales.scale);
    Isa::store_f32(group_scales + g * 2 * kLine + kLine, scales.min);
  }
}

template <int kTokens, typename Weights>
THALWEG_INLINE void product4(const Product& product, const Weights& weights, const Target& target, std::int64_t token) {
  const std::int64_t num_cols = product.part.num_cols;
  const std::int64_t num_groups = num_cols / kGroupCols;
  const std::int8_t* codes = product.codes + token * num_cols;
  const ActivationGroup* groups = product.groups + token * num_groups;
  F y[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) y[t] = Isa::zero();
  for (std::int64_t g = 0; g < num_groups; ++g) {
    Isa::Sum4 sums[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) sums[t] = Isa::start4();
    weights.for_each_word(
        g, [&](int j, W words) __attribute__((always_inline)) {
#pragma GCC unroll 16
          for (int t = 0; t < kTokens; ++t) {
            Isa::add4(sums[t], words, word_at(codes + t * num_cols + g * kGroupCols + 4 * j));
          }
        });
    const Scales scales = weights.scales(g);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup& group = groups[t * num_groups + g];
      y[t] = Isa::fma(Isa::float_from_sum4(sums[t]), Isa::multiply(Isa::broadcast(group.scale), scales.scale), y[t]);
      y[t] = Isa::fma(scales.min, Isa::broadcast(group.sum), y[t]);
    }
  }
  finish_all<kTokens>(product, target, token, y);
}

// ---- Weights with 8 bits. ----

template <Coding kCoding, int kTokens>
THALWEG_INLINE void product8(const Product& product, const std::byte* tile, const Target& target, std::int64_t token) {
  const PackedPart& part = product.part;
  const std::int64_t num_groups = part.num_cols / kGroupCols;
  const std::int8_t* codes = product.codes + token * part.num_cols;
  const ActivationGroup* groups = product.groups + token * num_groups;
  F y[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) y[t] = Isa::zero();
  for (std::int64_t g = 0; g < num_groups; ++g) {
    const std::byte* lines = tile + part.codes_offset + g * 8 * kLine;
    F dots[kTokens];
    const auto half = [&](int first_word, Isa::Sum8* sums) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int j = first_word; j < first_word + 4; ++j) {
        const Isa::Words8 words = Isa::prepare8(Isa::load_words(lines + j * kLine));
        _mm_prefetch(reinterpret_cast<const char*>(lines + kPrefetchBytes + j * kLine), _MM_HINT_T0);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
          Isa::add8(sums[t], words, word_at(codes + t * part.num_cols + g * kGroupCols + 4 * j));
        }
      }
    };
    Isa::Sum8 sums[kTokens];
    if constexpr (kCoding == Coding::kQ8SuperScale16) {
      // Dot products of the halves times their int8 scales stay below 2^24: their sum is exact in fp32.
      const std::byte* sub_scales = tile + part.groups_offset + g * 32;
      Isa::Sum8 scaled[kTokens];
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) sums[t] = Isa::start8(groups[t * num_groups + g].offsets[0]);
      half(0, sums);
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) {
        scaled[t] = Isa::multiply_by_i8(sums[t], sub_scales);
        sums[t] = Isa::start8(groups[t * num_groups + g].offsets[1]);
      }
      half(4, sums);
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) {
        dots[t] = Isa::float_from_sum8(Isa::add(scaled[t], Isa::multiply_by_i8(sums[t], sub_scales + 16)));
      }
    } else {
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup& group = groups[t * num_groups + g];
        sums[t] = Isa::start8(group.offsets[0] + group.offsets[1]);
      }
      half(0, sums);
      half(4, sums);
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) dots[t] = Isa::float_from_sum8(sums[t]);
    }
    const Scales scales = packed_scales<kCoding>(part, tile, g);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup& group = groups[t * num_groups + g];
      y[t] = Isa::fma(dots[t], Isa::multiply(Isa::broadcast(group.scale), scales.scale), y[t]);
      if constexpr (kHasMin<kCoding>) y[t] = Isa::fma(scales.min, Isa::broadcast(group.sum), y[t]);
    }
  }
  finish_all<kTokens>(product, target, token, y);
}

// ---- Float weights. ----

template <Coding kCoding>
THALWEG_INLINE F load_weights(const std::byte* tile, std::int64_t k) {
  if constexpr (kCoding == Coding::kF32) {
    return Isa::load_f32(tile + k * 64);
  } else if constexpr (kCoding == Coding::kF16) {
    return Isa::load_f16(tile + k * 32);
  } else {
    return Isa::load_bf16(tile + k * 32);
  }
}

// Several tiles at once when there are few tokens: each sum is one chain of dependent additions.
template <Coding kCoding, int kTiles, int kTokens>
THALWEG_INLINE void product_float(const Product& product, std::int64_t first_tile, std::int64_t token) {
  const PackedPart& part = product.part;
  const std::byte* tile = product.tiles + first_tile * part.tile_bytes;
  const float* x = product.x + token * product.x_stride;
  F y[kTiles][kTokens];
#pragma GCC unroll 16
  for (int i = 0; i < kTiles; ++i) {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) y[i][t] = Isa::zero();
  }
  for (std::int64_t k = 0; k < part.num_cols; ++k) {
#pragma GCC unroll 16
    for (int i = 0; i < kTiles; ++i) {
      const F w = load_weights<kCoding>(tile + i * part.tile_bytes, k);
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) y[i][t] = Isa::fma(w, Isa::broadcast(x[t * product.x_stride + k]), y[i][t]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTiles; ++i) finish_all<kTokens>(product, target_of(part, first_tile + i), token, y[i]);
}

// ---- Rectangles of tiles and tokens. ----

struct Rectangle {
  std::int64_t first_tile;
  std::int64_t last_tile;
  std::int64_t first_token;
  std::int64_t last_token;
};

// Calls block.run<n>(token) for blocks of kMost tokens, then for smaller ones of few different sizes.
template <int kMost, typename Block>
THALWEG_INLINE void for_token_blocks(std::int64_t first, std::int64_t last, const Block& block) {
  for (; last - first >= kMost; first += kMost) block.template run<kMost>(first);
  if constexpr (kMost > 1) {
    constexpr int kNext = kMost > 4 ? kMost / 2 : kMost - 1;
    if (last > first) for_token_blocks<kNext>(first, last, block);
  }
}

template <typename Weights>
struct Block4 {
  const Product& product;
  const Weights& weights;
  const Target& target;
  template <int kTokens>
  __attribute__((noinline)) void run(std::int64_t token) const {
    product4<kTokens>(product, weights, target, token);
  }
};

template <Coding kCoding>
struct Block8 {
  const Product& product;
  const std::byte* tile;
  const Target& target;
  template <int kTokens>
  __attribute__((noinline)) void run(std::int64_t token) const {
    product8<kCoding, kTokens>(product, tile, target, token);
  }
};

template <Coding kCoding, int kTiles>
struct BlockFloat {
  const Product& product;
  std::int64_t tile;
  template <int kTokens>
  __attribute__((noinline)) void run(std::int64_t token) const {
    product_float<kCoding, kTiles, kTokens>(product, tile, token);
  }
};

template <Coding kCoding>
void rectangle4(const Product& product, const Rectangle& area, std::byte* scratch) {
  const PackedPart& part = product.part;
  const std::int64_t num_groups = part.num_cols / kGroupCols;
  // Unpacking pays when it is shared.
  const bool unpacks = area.last_token - area.first_token > Isa::kTokens4 + 1;
  for (std::int64_t i = area.first_tile; i < area.last_tile; ++i) {
    const std::byte* tile = product.tiles + i * part.tile_bytes;
    const Target target = target_of(part, i);
    if (unpacks) {
      unpack<kCoding>(part, tile, scratch);
      const std::byte* group_scales = scratch + num_groups * 8 * kLine;
      const UnpackedNibbles<true> first{scratch, group_scales, tile + part.tile_bytes, part.tile_bytes / num_groups};
      const UnpackedNibbles<false> others{scratch, group_scales, nullptr, 0};
      Block4<UnpackedNibbles<true>>{product, first, target}.template run<Isa::kTokens4>(area.first_token);
      for_token_blocks<Isa::kTokens4>(area.first_token + Isa::kTokens4, area.last_token,
                                      Block4<UnpackedNibbles<false>>{product, others, target});
    } else {
      const PackedNibbles<kCoding> weights{part, tile};
      for_token_blocks<Isa::kTokens4>(area.first_token, area.last_token,
                                      Block4<PackedNibbles<kCoding>>{product, weights, target});
    }
  }
}

template <Coding kCoding>
void rectangle8(const Product& product, const Rectangle& area) {
  for (std::int64_t i = area.first_tile; i < area.last_tile; ++i) {
    const std::byte* tile = product.tiles + i * product.part.tile_bytes;
    const Target target = target_of(product.part, i);
    for_token_blocks<Isa::kTokens8>(area.first_token, area.last_token, Block8<kCoding>{product, tile, target});
  }
}

template <Coding kCoding>
void rectangle_float(const Product& product, const Rectangle& area) {
  std::int64_t tile = area.first_tile;
  if (area.last_token - area.first_token <= 2) {
    for (; tile + 4 <= area.last_tile; tile += 4) {
      for_token_blocks<2>(area.first_token, area.last_token, BlockFloat<kCoding, 4>{product, tile});
    }
  }
  for (; tile < area.last_tile; ++tile) {
    for_token_blocks<Isa::kTokensF>(area.first_token, area.last_token, BlockFloat<kCoding, 1>{product, tile});
  }
}

void product(const Product& product, std::int64_t first_tile, std::int64_t last_tile, std::int64_t first_token,
             std::int64_t last_token, std::byte* scratch) {
  const Rectangle area{first_tile, last_tile, first_token, last_token};
  switch (product.part.coding) {
    case Coding::kF32:
      return rectangle_float<Coding::kF32>(product, area);
    case Coding::kF16:
      return rectangle_float<Coding::kF16>(product, area);
    case Coding::kBF16:
      return rectangle_float<Coding::kBF16>(product, area);
    case Coding::kQ4ScaleMin:
      return rectangle4<Coding::kQ4ScaleMin>(product, area, scratch);
    case Coding::kQ4Super:
      return rectangle4<Coding::kQ4Super>(product, area, scratch);
    case Coding::kQ8Scale:
      return rectangle8<Coding::kQ8Scale>(product, area);
    case Coding::kQ8ScaleMin:
      return rectangle8<Coding::kQ8ScaleMin>(product, area);
    case Coding::kQ8Super:
      return rectangle8<Coding::kQ8Super>(product, area);
    case Coding::kQ8SuperScale16:
      return rectangle8<Coding::kQ8SuperScale16>(product, area);
  }
}

}  // namespace
}  // namespace thalweg::kernels
