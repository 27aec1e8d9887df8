#include "kv_cache/block_pool.h"

#include <gtest/gtest.h>

namespace thalweg::kv_cache {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool(4);
  std::vector<bool> seen(4, false);
  for (int i = 0; i < 4; ++i) {
    const BlockId block = pool.take();
    EXPECT_FALSE(seen[static_cast<std::size_t>(block)]);
    seen[static_cast<std::size_t>(block)] = true;
    pool.check_invariants();
  }
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_used(), 4);
  EXPECT_DEATH(pool.take(), "num_free_ > 0");
}

TEST(BlockPool, EmptyBlocksGoBeforeCachedOnesAndTheOldestCachedFirst) {
  BlockPool pool(4);
  for (int i = 0; i < 4; ++i) pool.take();
  for (BlockId block : {2, 0}) pool.set_content(block, true);
  for (BlockId block : {2, 1, 0}) pool.release(block);
  pool.check_invariants();
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_TRUE(pool.has_content(2));  // for the caller to forget
  EXPECT_EQ(pool.take(), 0);
}

TEST(BlockPool, AFreeBlockWithContentComesBackToLife) {
  BlockPool pool(2);
  const BlockId block = pool.take();
  pool.set_content(block, true);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 2);
  pool.reference(block);
  pool.reference(block);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_references(block), 2);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 1);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 2);
  pool.set_content(block, false);
  pool.check_invariants();
  EXPECT_DEATH(pool.reference(block), "has_content");
  EXPECT_DEATH(pool.release(block), "num_references > 0");
}

}  // namespace
}  // namespace thalweg::kv_cache
