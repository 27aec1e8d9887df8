// A lane holds one entry, so that nothing is added across lanes: 32 entries are unpacked and transposed once, then each
// head passes over them with one byte product (vpmaddubsw) per four channels of eight entries.
#include <immintrin.h>

#include "kernels/attention/sparse_attention/round_bf16_avx2.h"
#include "kernels/index/versions.h"

namespace thalweg::kernels::index {
namespace {

constexpr int kVectors = kTileEntries / 8;
constexpr int kMaxGroups = kMaxCodedDim / kGroup;

/// One group of all entries of a tile.
struct KeyGroup {
  __m256i words[kWordsPerGroup][kVectors];  // four channels of eight entries, twice the codes
  __m256i first_sums[kVectors];             // what the queries' offset of 12 adds, taken away, in pairs of channels
  __m256 scales[kVectors];
};

/// Four words of eight entries, from the 16 bytes of codes of each: words[w], lane e.
void transpose(const std::byte* const* codes, __m256i words[4]) {
  const auto load_two = [&](int entry) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes[entry]));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes[entry + 4]));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  };
  const __m256i a = load_two(0);
  const __m256i b = load_two(1);
  const __m256i c = load_two(2);
  const __m256i d = load_two(3);
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b);
  const __m256i ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi32(c, d);
  const __m256i cd_high = _mm256_unpackhi_epi32(c, d);
  words[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
  words[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
  words[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
  words[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

/// Powers of two: the stored byte is the exponent of an fp32 number.
__m256 load_scales(const std::byte* const* scales) {
  int bytes[8];
  for (int entry = 0; entry < 8; ++entry) bytes[entry] = static_cast<int>(*scales[entry]);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)), 23));
}

/// Eight entries of a group.
void unpack(const std::byte* const* keys, std::int64_t code_offset, std::int64_t scale_offset, int vector,
            KeyGroup& group) {
  const __m256i doubled =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  const __m256i nibble = _mm256_set1_epi8(15);
  const std::byte* codes[8];
  const std::byte* scales[8];
  for (int entry = 0; entry < 8; ++entry) {
    codes[entry] = keys[entry] + code_offset;
    scales[entry] = keys[entry] + scale_offset;
  }
  __m256i stored[4];
  transpose(codes, stored);
  __m256i sum = _mm256_setzero_si256();
  for (int w = 0; w < 4; ++w) {
    const __m256i even = _mm256_shuffle_epi8(doubled, _mm256_and_si256(stored[w], nibble));
    const __m256i odd = _mm256_shuffle_epi8(doubled, _mm256_and_si256(_mm256_srli_epi16(stored[w], 4), nibble));
    group.words[2 * w][vector] = even;
    group.words[2 * w + 1][vector] = odd;
    sum = _mm256_sub_epi16(sum, _mm256_maddubs_epi16(_mm256_set1_epi8(12), even));
    sum = _mm256_sub_epi16(sum, _mm256_maddubs_epi16(_mm256_set1_epi8(12), odd));
  }
  group.first_sums[vector] = sum;
  group.scales[vector] = load_scales(scales);
}

template <bool kRoundsBf16>
__m256 rounded(__m256 x) {
  return kRoundsBf16 ? round_bf16_avx2(x) : x;
}

template <bool kRoundsBf16>
void score(const ScoreArgs& args, const KeyGroup* keys, int num_groups) {
  __m256 scores[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) scores[v] = _mm256_setzero_ps();
  const std::uint32_t* words = args.codes.words;
  const float* scales = args.codes.scales;
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    __m256 dots[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) dots[v] = _mm256_setzero_ps();
    for (int g = 0; g < num_groups; ++g, words += kWordsPerGroup, ++scales) {
      __m256i sums[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[v] = keys[g].first_sums[v];
#pragma GCC unroll 8
      for (int w = 0; w < kWordsPerGroup; ++w) {
        const __m256i query = _mm256_set1_epi32(static_cast<int>(words[w]));
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[v] = _mm256_add_epi16(sums[v], _mm256_maddubs_epi16(query, keys[g].words[w][v]));
          asm("" : "+x"(sums[v]));  // or the compiler reorders the sums until they no longer fit the registers
        }
      }
      const __m256 query_scale = _mm256_broadcast_ss(scales);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m256 whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums[v], _mm256_set1_epi16(1)));
        dots[v] = _mm256_fmadd_ps(_mm256_mul_ps(whole, keys[g].scales[v]), query_scale, dots[v]);
      }
    }
    const __m256 weight = _mm256_broadcast_ss(args.weights + head);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m256 positive = _mm256_max_ps(rounded<kRoundsBf16>(dots[v]), _mm256_setzero_ps());
      scores[v] = _mm256_add_ps(scores[v], rounded<kRoundsBf16>(_mm256_mul_ps(weight, positive)));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(args.scores + 8 * v, rounded<kRoundsBf16>(scores[v]));
}

}  // namespace

void score_avx2(const ScoreArgs& args) {
  KeyGroup keys[kMaxGroups];
  const int num_groups = args.head_dim / kGroup;
  for (int g = 0; g < num_groups; ++g) {
    for (int v = 0; v < kVectors; ++v) {
      unpack(args.keys + 8 * v, std::int64_t{g} * kGroup / 2, args.head_dim / 2 + g, v, keys[g]);
    }
  }
  args.rounds_bf16 ? score<true>(args, keys, num_groups) : score<false>(args, keys, num_groups);
}

}  // namespace thalweg::kernels::index
