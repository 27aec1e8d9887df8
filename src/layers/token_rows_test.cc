#include "layers/token_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace thalweg::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Fixture {
  // Three sequences: a prompt chunk of 3 tokens, one decoded token, a chunk of 2.
  std::vector<std::int32_t> positions{4, 5, 6, 9, 0, 1};
  std::vector<std::int32_t> cu_seqlens{0, 3, 4, 6};
  std::vector<std::int32_t> context_lens{7, 10, 2};
  std::vector<std::int32_t> block_tables{1, 2, 3};
  std::vector<float> hidden{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51};
  TokenRows rows;

  Fixture() { rows.begin({positions, cu_seqlens, context_lens, block_tables, 1}); }
};

TEST(TokenRows, KeepsWantedTokensOfEachSequence) {
  Fixture f;
  const std::vector<std::int32_t> wanted{2, 3};
  f.rows.keep(wanted, {{f.hidden.data(), 2}});
  EXPECT_EQ(f.rows.count(), 2);
  EXPECT_THAT(f.rows.batch().positions, ElementsAre(6, 9));
  EXPECT_THAT(f.rows.batch().cu_seqlens, ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(f.rows.batch().context_lens, ElementsAre(7, 10, 2));
  EXPECT_THAT(std::span(f.hidden).first(4), ElementsAre(20, 21, 30, 31));
}

TEST(TokenRows, KeepingAllChangesNothing) {
  Fixture f;
  const std::vector<std::int32_t> wanted{0, 1, 2, 3, 4, 5};
  const std::vector<float> before = f.hidden;
  f.rows.keep(wanted, {{f.hidden.data(), 2}});
  EXPECT_EQ(f.rows.batch().positions.data(), f.positions.data());
  EXPECT_EQ(f.hidden, before);
}

TEST(TokenRows, KeepingNoneLeavesAnEmptyBatch) {
  Fixture f;
  f.rows.keep({}, {{f.hidden.data(), 2}});
  EXPECT_EQ(f.rows.count(), 0);
  EXPECT_THAT(f.rows.batch().positions, IsEmpty());
  EXPECT_THAT(f.rows.batch().cu_seqlens, ElementsAre(0, 0, 0, 0));
}

TEST(TokenRowsDeathTest, RefusesTokensOutsideTheBatch) {
  Fixture f;
  const std::vector<std::int32_t> wanted{6};
  EXPECT_DEATH(f.rows.keep(wanted, {}), "0 against 1");
}

}  // namespace
}  // namespace thalweg::layers
