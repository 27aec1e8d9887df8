#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace thalweg::sampling {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers published with the generator.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformIsUniformAcrossSeedsAndPositions) {
  // 64 bins, neighbouring seeds and positions as requests have them; chi-square with 63 degrees of freedom exceeds
  // 103.4 once in a thousand.
  for (const bool by_seed : {false, true}) {
    std::vector<int> bins(64, 0);
    constexpr int kDraws = 64000;
    for (int i = 0; i < kDraws; ++i) {
      const double u = by_seed ? uniform({static_cast<std::uint64_t>(i), 0, DrawPurpose::kToken})
                               : uniform({42, static_cast<std::uint64_t>(i), DrawPurpose::kToken});
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++bins[static_cast<std::size_t>(u * 64)];
    }
    double chi_square = 0.0;
    for (const int count : bins) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi_square, 103.4) << "by_seed " << by_seed;
  }
}

TEST(Philox, PurposesAndGroupsAreIndependent) {
  std::set<std::uint32_t> seen;
  for (std::uint32_t group = 0; group < 8; ++group) {
    for (const std::uint32_t offset : {0U, 1U, 2U}) {
      for (const std::uint32_t word : random_words({5, 9, DrawPurpose::kDraft, offset}, group)) seen.insert(word);
    }
  }
  EXPECT_EQ(seen.size(), 8U * 3U * 4U);
}

TEST(Philox, NumberDependsOnSeedAndPositionAlone) {
  EXPECT_EQ(uniform({7, 3, DrawPurpose::kToken}), uniform({7, 3, DrawPurpose::kToken}));
  EXPECT_NE(uniform({7, 3, DrawPurpose::kToken}), uniform({7, 4, DrawPurpose::kToken}));
  EXPECT_NE(uniform({7, 3, DrawPurpose::kToken}), uniform({8, 3, DrawPurpose::kToken}));
  EXPECT_NE(uniform({7, 3, DrawPurpose::kToken}), uniform({7 + (1ULL << 32), 3, DrawPurpose::kToken}));
}

}  // namespace
}  // namespace thalweg::sampling
