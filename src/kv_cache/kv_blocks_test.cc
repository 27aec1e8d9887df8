#include "kv_cache/kv_blocks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace thalweg::kv_cache {
namespace {

constexpr std::int32_t kBlockSize = 4;

CacheSpec small_spec() {
  CacheSpec spec;
  spec.block_size = kBlockSize;
  return spec;
}

std::vector<BlockHash> hashes_of(const BlockHasher& hasher, const std::vector<std::int32_t>& tokens,
                                 std::string_view salt = {}) {
  std::vector<BlockHash> hashes;
  BlockHash parent = hasher.root(salt);
  for (std::size_t i = 0; i + kBlockSize <= tokens.size(); i += kBlockSize) {
    parent = hasher.next(parent, std::span(tokens).subspan(i, kBlockSize));
    hashes.push_back(parent);
  }
  return hashes;
}

TEST(BlockHasher, DependsOnSecretSaltHistoryAndTokens) {
  const BlockHasher hasher(1);
  const BlockHasher other(2);
  const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto base = hashes_of(hasher, tokens);
  EXPECT_EQ(base, hashes_of(BlockHasher(1), tokens));
  EXPECT_NE(base[0], hashes_of(other, tokens)[0]);
  EXPECT_NE(base[0], hashes_of(hasher, tokens, "salt")[0]);
  EXPECT_NE(hashes_of(hasher, tokens, "a")[0], hashes_of(hasher, tokens, "b")[0]);
  const auto changed = hashes_of(hasher, {9, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_NE(base[1], changed[1]);
  EXPECT_NE(hashes_of(BlockHasher(), tokens), hashes_of(BlockHasher(), tokens));
}

TEST(BlockHasher, LongBlocks) {
  const BlockHasher hasher(1);
  std::vector<std::int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  const BlockHash root = hasher.root("");
  const BlockHash hash = hasher.next(root, tokens);
  tokens.back() ^= 1;
  EXPECT_NE(hash, hasher.next(root, tokens));
}

TEST(KvBlocks, FindsTheLongestPublishedRun) {
  const BlockHasher hasher(1);
  KvBlocks blocks(small_spec(), 8, true);
  const auto hashes = hashes_of(hasher, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  std::vector<BlockId> table;
  blocks.grow(table, 3);
  blocks.publish(table[0], hashes[0]);
  blocks.publish(table[2], hashes[2]);
  std::vector<BlockId> run;
  blocks.find_run(hashes, run);
  EXPECT_EQ(run, std::vector<BlockId>({table[0]}));
  blocks.publish(table[1], hashes[1]);
  blocks.find_run(hashes, run);
  EXPECT_EQ(run, table);
}

TEST(KvBlocks, ContentOutlivesItsHolderUntilTheBlockIsNeeded) {
  const BlockHasher hasher(1);
  KvBlocks blocks(small_spec(), 4, true);
  const auto hashes = hashes_of(hasher, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  std::vector<BlockId> table, run, other;
  blocks.grow(table, 3);
  for (std::size_t i = 0; i < 3; ++i) blocks.publish(table[i], hashes[i]);
  blocks.release_all(table);
  EXPECT_EQ(blocks.num_used(), 0);
  blocks.find_run(hashes, run);
  EXPECT_EQ(run.size(), 3U);
  EXPECT_EQ(blocks.count_free(run), 3);

  blocks.grow(other, 2);  // the empty one, then the end of the prefix
  blocks.find_run(hashes, run);
  EXPECT_EQ(run.size(), 2U);
  blocks.share(run, table);
  blocks.check_invariants(std::vector<const std::vector<BlockId>*>{&table, &other});
  EXPECT_EQ(blocks.num_free(), 0);
}

TEST(KvBlocks, TheSameContentIsKeptOnce) {
  const BlockHasher hasher(1);
  KvBlocks blocks(small_spec(), 4, true);
  const auto hashes = hashes_of(hasher, {1, 2, 3, 4});
  std::vector<BlockId> first, second;
  blocks.grow(first, 1);
  blocks.grow(second, 1);
  blocks.publish(first[0], hashes[0]);
  blocks.publish(second[0], hashes[0]);
  EXPECT_EQ(blocks.num_cached(), 1);
  blocks.forget(hashes);
  EXPECT_EQ(blocks.num_cached(), 0);
  blocks.publish(second[0], hashes[0]);
  EXPECT_EQ(blocks.num_cached(), 1);
  blocks.release_all(first);
  blocks.release_all(second);
  blocks.reset_prefix_cache();
  EXPECT_EQ(blocks.num_cached(), 0);
  blocks.check_invariants({});
}

TEST(KvBlocks, WithoutPrefixCacheNothingIsKept) {
  const BlockHasher hasher(1);
  KvBlocks blocks(small_spec(), 2, false);
  std::vector<BlockId> table, run;
  blocks.grow(table, 1);
  const auto hashes = hashes_of(hasher, {1, 2, 3, 4});
  blocks.publish(table[0], hashes[0]);
  blocks.find_run(hashes, run);
  EXPECT_TRUE(run.empty());
  EXPECT_EQ(blocks.num_cached(), 0);
}

TEST(KvBlocks, RandomHoldersKeepTheInvariants) {
  const BlockHasher hasher(3);
  KvBlocks blocks(small_spec(), 40, true);
  std::mt19937 random(7);
  struct Holder {
    std::vector<BlockHash> hashes;
    std::vector<BlockId> table;
  };
  std::vector<Holder> holders;
  for (int turn = 0; turn < 3000; ++turn) {
    if (random() % 2 == 0) {
      std::vector<std::int32_t> tokens(kBlockSize * (1 + random() % 6));
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(random() % 8 == 0);
      Holder holder{hashes_of(hasher, tokens), {}};
      std::vector<BlockId> run;
      blocks.find_run(holder.hashes, run);
      const auto missing = static_cast<std::int32_t>(holder.hashes.size() - run.size());
      if (missing + blocks.count_free(run) <= blocks.num_free()) {
        blocks.share(run, holder.table);
        blocks.grow(holder.table, missing);
        for (std::size_t i = run.size(); i < holder.table.size(); ++i) {
          blocks.publish(holder.table[i], holder.hashes[i]);
        }
        holders.push_back(std::move(holder));
      }
    }
    if (!holders.empty() && (holders.size() > 12 || random() % 3 == 0)) {
      const std::size_t index = random() % holders.size();
      if (random() % 8 == 0) blocks.forget(holders[index].hashes);
      blocks.release_all(holders[index].table);
      std::swap(holders[index], holders.back());
      holders.pop_back();
    }
    std::vector<const std::vector<BlockId>*> tables;
    for (const Holder& holder : holders) tables.push_back(&holder.table);
    blocks.check_invariants(tables);
  }
  EXPECT_GT(blocks.num_cached(), 0);
}

TEST(CutHit, LeavesOneTokenAndTakesWholeBlocksAndGranules) {
  CacheSpec spec;
  spec.block_size = 16;
  spec.replay_tokens = 140;  // changes nothing: the blocks of the whole hit are shared
  EXPECT_EQ(cut_hit(spec, 0, 100), 0);
  EXPECT_EQ(cut_hit(spec, 64, 100), 64);
  EXPECT_EQ(cut_hit(spec, 63, 100), 48);
  EXPECT_EQ(cut_hit(spec, 64, 64), 48);
  EXPECT_EQ(cut_hit(spec, 64, 65), 64);
  EXPECT_EQ(cut_hit(spec, 16, 1), 0);
  spec.hit_granularity = 128;
  EXPECT_EQ(cut_hit(spec, 160, 1000), 128);
  EXPECT_EQ(cut_hit(spec, 112, 1000), 0);
  spec.hit_granularity = 24;
  EXPECT_EQ(cut_hit(spec, 112, 1000), 96);
  EXPECT_EQ(cut_hit(spec, 112, 96), 48);
}

TEST(FirstTokenAfterHit, BeginsTheReplayBeforeTheEnd) {
  CacheSpec spec;
  EXPECT_EQ(first_token_after_hit(spec, 0), 0);
  EXPECT_EQ(first_token_after_hit(spec, 64), 64);
  spec.replay_tokens = 10;
  EXPECT_EQ(first_token_after_hit(spec, 64), 54) << "not cut to blocks";
  spec.replay_tokens = 140;
  EXPECT_EQ(first_token_after_hit(spec, 640), 500);
  EXPECT_EQ(first_token_after_hit(spec, 128), 0);
}

}  // namespace
}  // namespace thalweg::kv_cache
