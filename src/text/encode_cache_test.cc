#include "text/encode_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace thalweg::text {
namespace {

TEST(PieceEnd, LiesBetweenALetterAndASpaceBeforeALetter) {
  EXPECT_EQ(piece_end("ab cd ef", 0, 1), 2u);
  EXPECT_EQ(piece_end("ab cd ef", 2, 2), 5u);
  EXPECT_EQ(piece_end("ab  cd", 0, 1), 6u);
  EXPECT_EQ(piece_end("ab. cd", 0, 1), 6u);
  EXPECT_EQ(piece_end("ab 1", 0, 1), 4u);
  EXPECT_EQ(piece_end("ab ", 0, 1), 3u);
  EXPECT_EQ(piece_end("ab cd", 0, 100), 5u);
}

TEST(EncodeCache, KeepsVariantsApart) {
  EncodeCache cache(1 << 20);
  cache.insert("text", false, {1, 2});
  std::vector<std::int32_t> ids{9};
  EXPECT_FALSE(cache.append("text", true, ids));
  EXPECT_TRUE(cache.append("text", false, ids));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{9, 1, 2}));
  EXPECT_EQ(cache.num_hits(), 1u);
}

TEST(EncodeCache, DropsTheLeastRecentlyUsed) {
  EncodeCache cache(3 * 1400);
  const std::string a(1024, 'a'), b(1024, 'b'), c(1024, 'c'), d(1024, 'd');
  std::vector<std::int32_t> ids;
  cache.insert(a, false, {1});
  cache.insert(b, false, {2});
  cache.insert(c, false, {3});
  EXPECT_TRUE(cache.append(a, false, ids));
  cache.insert(d, false, {4});
  EXPECT_TRUE(cache.append(a, false, ids));
  EXPECT_FALSE(cache.append(b, false, ids));
  EXPECT_LE(cache.num_bytes(), 3u * 1400);
  cache.insert(std::string(10000, 'x'), false, {5});  // larger than everything: not kept, nothing lost
  EXPECT_TRUE(cache.append(d, false, ids));
}

TEST(EncodeCache, ManyThreads) {
  EncodeCache cache(20000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (std::int32_t i = 0; i < 3000; ++i) {
        const std::int32_t value = (i * 7 + t) % 50;
        const std::string key = "piece" + std::to_string(value);
        std::vector<std::int32_t> ids;
        if (cache.append(key, false, ids)) {
          ASSERT_EQ(ids, std::vector<std::int32_t>{value});
        } else {
          cache.insert(key, false, {value});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.num_bytes(), 20000u);
  EXPECT_GT(cache.num_hits(), 0u);
}

}  // namespace
}  // namespace thalweg::text
