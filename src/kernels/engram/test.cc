#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device/float_types.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/engram/engram.h"
#include "kernels/engram/numpy_random.h"

namespace thalweg::kernels::engram {
namespace {

using testing::ElementsAre;

EngramConfig released_config() {
  return {.layer_ids = {1, 14},
          .max_ngram_size = 4,
          .num_heads = 8,
          .min_vocab_size = 16000000,
          .compressed_vocab_size = 99092,
          .pad_class = 2};
}

/// `newest_first`: the token's class, then those before it.
std::vector<std::int64_t> rows_of(const EngramHash& hash, std::vector<std::int32_t> newest_first) {
  std::ranges::reverse(newest_first);
  std::vector<std::int64_t> rows(hash.primes.size());
  engram_rows(hash, newest_first, rows.data());
  return rows;
}

std::vector<std::uint64_t> draws_below(std::uint64_t seed, std::uint64_t bound, int count) {
  NumpyRandom random(seed);
  std::vector<std::uint64_t> draws;
  for (int i = 0; i < count; ++i) draws.push_back(random.next_below(bound));
  return draws;
}

/// Recorded from NumPy 2.4.6.
TEST(NumpyRandom, DrawsWhatNumpyDraws) {
  NumpyRandom random(12345);  // default_rng(12345).bit_generator.random_raw(3)
  EXPECT_EQ(random.next(), 4193609425186963869U);
  EXPECT_EQ(random.next(), 5843160025838961886U);
  EXPECT_EQ(random.next(), 14708796524633321433U);
  // default_rng(seed).integers(0, bound, dtype=uint64): a seed of two words, then a bound that refuses half of all
  // words.
  EXPECT_THAT(draws_below((std::uint64_t{1} << 40) + 5, 1000000000000000U, 4),
              ElementsAre(4739459374490U, 372584582411211U, 587229426697770U, 151399648724923U));
  EXPECT_THAT(draws_below(7, (std::uint64_t{1} << 63) + 1, 6),
              ElementsAre(0x6349ab2fca057cb1U, 0x266bd94c871ba8a2U, 0x6fd0996ba47d139aU, 0x66065efc90d30cafU,
                          0x3be54ae38f3e1c90U, 0x23a373512bb9a942U));
}

/// Multipliers and primes of DeepSeek-V4.1 (its specification, section 5.2).
TEST(EngramHash, HasTheNumbersOfTheReleasedModel) {
  const std::vector<EngramHash> hashes = make_engram_hashes(released_config());
  ASSERT_EQ(hashes.size(), 2U);
  EXPECT_THAT(hashes[0].multipliers, ElementsAre(76632096046245, 4839876093313, 35959672319349, 73987337458391));
  EXPECT_THAT(hashes[1].multipliers, ElementsAre(67716810739261, 51510806800915, 30921347202721, 82619226485591));
  EXPECT_THAT(hashes[0].primes,
              ElementsAre(16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,  //
                          16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,  //
                          16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463));
  EXPECT_THAT(hashes[1].primes,
              ElementsAre(16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,  //
                          16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,  //
                          16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889));
  EXPECT_EQ(hashes[0].num_rows(), 384006168);
  EXPECT_EQ(hashes[1].num_rows(), 384016682);
  EXPECT_EQ(hashes[0].offsets[8], 128000880);
  EXPECT_EQ(hashes[1].offsets[23], 368015793);
}

/// Appendix A.3 of the specification.
TEST(EngramHash, GivesTheRowsOfTheReleasedModel) {
  const std::vector<EngramHash> hashes = make_engram_hashes(released_config());
  EXPECT_THAT(rows_of(hashes[0], {99091, 42, 17, 5}),
              ElementsAre(9990907, 19873187, 42559059, 56587608, 66104965, 82204055, 107677469, 122176752, 137138016,
                          157689724, 166644931, 181981811, 203445678, 218991853, 234328612, 248879257, 259713559,
                          287152866, 298213131, 314946926, 321955791, 342248992, 365696158, 380985126));
  EXPECT_THAT(rows_of(hashes[1], {99091, 42, 17, 5}),
              ElementsAre(3899688, 25367577, 35645846, 52023933, 69470954, 87108478, 110820859, 124144678, 134101143,
                          154634622, 161376242, 176101690, 202242478, 212085977, 239555767, 248526241, 271448391,
                          285533735, 290448455, 313985545, 331090389, 345420592, 365097803, 370622694));
  EXPECT_THAT(rows_of(hashes[0], {5, 17, 42, 99091}),
              ElementsAre(3889985, 30570021, 40268302, 53854578, 74235168, 81029010, 100426120, 118891433, 142277169,
                          158657087, 160519684, 188086214, 199274528, 220871014, 237268028, 251801201, 262856235,
                          275953705, 300535936, 307919237, 335320631, 346139908, 361200448, 376280161));
  EXPECT_THAT(rows_of(hashes[1], {5, 17, 42, 99091}),
              ElementsAre(897380, 16353005, 34900403, 63266234, 69449016, 85289440, 108947768, 120779290, 142539705,
                          146891012, 167109966, 191814881, 206280823, 213455060, 230756318, 252527123, 265072024,
                          280401287, 303093072, 307511783, 322075744, 351576712, 366312980, 379827754));
}

TEST(EngramHash, WhatIsHiddenCountsAsPadding) {
  const EngramHash hash = make_engram_hashes(released_config())[0];
  const std::int32_t pad = hash.pad_class;
  // The start of a sequence.
  EXPECT_EQ(rows_of(hash, {5}), rows_of(hash, {5, pad, pad, pad}));
  EXPECT_EQ(rows_of(hash, {5, 6, 7}), rows_of(hash, {5, 6, 7, pad}));
  EXPECT_EQ(rows_of(hash, {}), rows_of(hash, {pad, pad, pad, pad}));
  // A dead position hides itself and what lies before it.
  EXPECT_EQ(rows_of(hash, {5, 6, kDeadToken, 8}), rows_of(hash, {5, 6, pad, pad}));
  EXPECT_EQ(rows_of(hash, {5, kDeadToken, 7, 8}), rows_of(hash, {5, pad, pad, pad}));
  EXPECT_EQ(rows_of(hash, {kDeadToken, 6, 7, 8}), rows_of(hash, {pad, pad, pad, pad}));
  EXPECT_NE(rows_of(hash, {5, kDeadToken, 7, 8}), rows_of(hash, {5, pad, 7, 8}));
}

TEST(EngramHash, SmallTablesTakeSmallPrimes) {
  const std::vector<EngramHash> hashes = make_engram_hashes(
      {.layer_ids = {0, 3}, .max_ngram_size = 3, .num_heads = 2, .min_vocab_size = 1, .compressed_vocab_size = 10});
  EXPECT_THAT(hashes[0].primes, ElementsAre(2, 3, 5, 7));
  EXPECT_THAT(hashes[0].offsets, ElementsAre(0, 2, 5, 10));
  EXPECT_THAT(hashes[1].primes, ElementsAre(11, 13, 17, 19));
  EXPECT_EQ(hashes[1].num_rows(), 60);
}

class Engram : public testing::Test {
 protected:
  device::ThreadPool threads_{2, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
};

TEST_F(Engram, LookupDecodesRows) {
  const std::int64_t num_rows = 40;
  const std::int64_t head_dim = 64;
  std::mt19937 random(1);
  std::vector<std::byte> codes(num_rows * head_dim);
  for (std::byte& code : codes) code = static_cast<std::byte>(random() % 127 | (random() % 2) << 7);  // no NaN
  std::vector<std::byte> scales(num_rows * head_dim / 32);
  for (std::byte& scale : scales) scale = static_cast<std::byte>(100 + random() % 40);
  std::vector<std::int64_t> rows{39, 0, 7, 7};
  while (rows.size() < 30) rows.push_back(static_cast<std::int64_t>(random() % num_rows));
  std::vector<float> out(rows.size() * head_dim);
  engram_lookup(stream_, {codes.data(), scales.data(), num_rows, head_dim}, rows, out.data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::int64_t c = 0; c < head_dim; ++c) {
      const auto code = std::to_integer<int>(codes[rows[i] * head_dim + c]);
      const auto scale = std::to_integer<int>(scales[rows[i] * head_dim / 32 + c / 32]);
      const int exponent = code >> 3 & 15;
      const int mantissa = code & 7;
      double value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      if (code >= 128) value = -value;
      ASSERT_EQ(out[i * head_dim + c], std::ldexp(value, scale - 127));
    }
  }
}

std::vector<float> normal_values(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

class EngramGate : public Engram {
 protected:
  static constexpr std::int32_t kStreams = 4;
  static constexpr std::int64_t kHidden = 41;

  struct Gated {
    std::vector<float> gate, x;
    bool operator==(const Gated&) const = default;
  };

  Gated run(std::int64_t first_token, std::int64_t count, bool rounds_bf16 = false) {
    Gated result{
        std::vector<float>(count * kStreams),
        {x_.begin() + first_token * kStreams * kHidden, x_.begin() + (first_token + count) * kStreams * kHidden}};
    engram_gate(stream_, {.shape = {.num_streams = kStreams, .hidden_size = kHidden, .norm_epsilon = 1e-20F},
                          .num_tokens = count,
                          .y = y_.data() + first_token * (kStreams + 1) * kHidden,
                          .q_weight = q_weight_.data(),
                          .k_weight = k_weight_.data(),
                          .dead = std::span(dead_).subspan(first_token, count),
                          .rounds_bf16 = rounds_bf16,
                          .gate = result.gate.data(),
                          .x = result.x.data()});
    return result;
  }

  std::int64_t num_tokens_ = 11;
  std::vector<float> x_ = normal_values(num_tokens_ * kStreams * kHidden, 1);
  std::vector<float> y_ = normal_values(num_tokens_ * (kStreams + 1) * kHidden, 2);
  std::vector<float> q_weight_ = normal_values(kStreams * kHidden, 3);
  std::vector<float> k_weight_ = normal_values(kStreams * kHidden, 4);
  std::vector<std::uint8_t> dead_ = std::vector<std::uint8_t>(num_tokens_);
};

TEST_F(EngramGate, FollowsTheFormula) {
  dead_[4] = 1;
  const Gated gated = run(0, num_tokens_);
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    const float* keys = y_.data() + token * (kStreams + 1) * kHidden;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const float* x = x_.data() + (token * kStreams + i) * kHidden;
      double dot = 0.0;
      double hidden_squares = 0.0;
      double key_squares = 0.0;
      for (std::int64_t c = 0; c < kHidden; ++c) {
        const double key = keys[i * kHidden + c];
        dot += x[c] * double{q_weight_[i * kHidden + c]} * k_weight_[i * kHidden + c] * key;
        hidden_squares += double{x[c]} * x[c];
        key_squares += key * key;
      }
      dot *= std::sqrt(kHidden / hidden_squares) * std::sqrt(kHidden / key_squares) / std::sqrt(double{kHidden});
      const double root = std::copysign(std::sqrt(std::max(std::abs(dot), 1e-6)), dot);
      const double gate = token == 4 ? 0.0 : 1.0 / (1.0 + std::exp(-root));
      EXPECT_NEAR(gated.gate[token * kStreams + i], gate, 1e-5);
      for (std::int64_t c = 0; c < kHidden; ++c) {
        EXPECT_NEAR(gated.x[(token * kStreams + i) * kHidden + c], x[c] + gate * keys[kStreams * kHidden + c], 1e-4);
      }
    }
  }
}

TEST_F(EngramGate, ATokenIsTheSameAloneAndAmongOthers) {
  const Gated together = run(0, num_tokens_);
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    const Gated alone = run(token, 1);
    EXPECT_TRUE(std::ranges::equal(alone.gate, std::span(together.gate).subspan(token * kStreams, kStreams)));
    EXPECT_TRUE(
        std::ranges::equal(alone.x, std::span(together.x).subspan(token * kStreams * kHidden, kStreams * kHidden)));
  }
}

TEST_F(EngramGate, RoundsLast) {
  Gated expected = run(0, num_tokens_);
  for (float& value : expected.x) value = device::float_from_bf16(device::bf16_from_float(value));
  EXPECT_EQ(run(0, num_tokens_, true), expected);
}

TEST_F(EngramGate, OfNothingIsHalfOpen) {
  std::ranges::fill(x_, 0.0F);
  const Gated gated = run(0, 1);
  EXPECT_THAT(gated.gate, testing::Each(testing::FloatNear(1.0F / (1.0F + std::exp(-1e-3F)), 1e-7F)));
}

TEST_F(EngramGate, EmptyBatchDoesNothing) {
  engram_gate(stream_, {});
  engram_lookup(stream_, {}, {}, nullptr);
}

}  // namespace
}  // namespace thalweg::kernels::engram
