// Every version against a naive implementation of the definition, bit for bit, and the promise that nobody else's
// tokens change a list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "device/buffer.h"
#include "device/float_types.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/index/best.h"
#include "kernels/index/index.h"

namespace thalweg::kernels {
namespace {

using device::CpuLevel;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  std::int32_t num_heads = 2;
  std::int32_t head_dim = 32;
  std::int32_t top_k = 8;
  std::int32_t entries_per_block = 16;
  QuantFormat format = QuantFormat::kF4Block32;
  bool rounds_bf16 = false;
  std::int32_t block_size = 8;  // candidates
  std::int32_t max_blocks = 4;
  /// Per row and token.
  std::vector<std::vector<std::int32_t>> num_visible;
};

struct Lists {
  std::vector<std::int32_t> lists;
  std::vector<std::int32_t> blocks;
  std::vector<float> scores;
  bool operator==(const Lists&) const = default;
};

std::vector<float> fp4_values(std::mt19937& random, std::int64_t count, QuantFormat format) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = normal(random) * std::exp2(static_cast<float>(i / 32 % 5));
  fake_quantize_row(format, values.data(), count, values.data());
  return values;
}

/// Rows of queries, and each row's keys at random blocks of a cache whose other bytes are 0xFF.
class World {
 public:
  explicit World(const Shape& shape, std::uint32_t seed = 1) : shape_(shape) {
    std::mt19937 random(seed);
    const std::int64_t key_bytes = quant_row_bytes(shape.format, shape.head_dim);
    std::int32_t num_blocks = 1;
    for (const std::vector<std::int32_t>& row : shape.num_visible) {
      num_tokens_ += static_cast<std::int32_t>(row.size());
      cu_seqlens_.push_back(num_tokens_);
      num_visible_.insert(num_visible_.end(), row.begin(), row.end());
      const std::int32_t num_entries = row.empty() ? 0 : std::ranges::max(row);
      max_blocks_ = std::max(max_blocks_, (num_entries + shape.entries_per_block - 1) / shape.entries_per_block);
    }
    num_blocks += max_blocks_ * static_cast<std::int32_t>(shape.num_visible.size());
    std::vector<std::int32_t> ids(num_blocks);
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::shuffle(ids, random);
    block_tables_.assign(ids.begin(), ids.end() - 1);

    entries_.format = shape.format;
    entries_.entry_bytes = key_bytes + 3;
    entries_.entries_per_block = shape.entries_per_block;
    entries_.block_stride = shape.entries_per_block * entries_.entry_bytes + 5;
    memory_ = device::Buffer(num_blocks * entries_.block_stride);
    std::memset(memory_.data(), 0xFF, memory_.size());
    entries_.base = memory_.data();

    q_ = fp4_values(random, std::int64_t{num_tokens_} * shape.num_heads * shape.head_dim, QuantFormat::kF4Block32);
    std::normal_distribution<float> normal;
    weights_.resize(std::int64_t{num_tokens_} * shape.num_heads);
    for (float& weight : weights_) weight = normal(random) / 8.0F;
    for (std::size_t row = 0; row < shape.num_visible.size(); ++row) {
      const std::vector<std::int32_t>& visible = shape.num_visible[row];
      const std::int32_t num_entries = visible.empty() ? 0 : std::ranges::max(visible);
      std::vector<float>& keys = keys_.emplace_back();
      for (std::int32_t entry = 0; entry < num_entries; ++entry) {
        // Every third key is one of before, so that scores tie.
        std::vector<float> key = fp4_values(random, shape.head_dim, shape.format);
        if (entry % 3 == 2) {
          const std::int64_t earlier = std::int64_t{static_cast<std::int32_t>(random() % entry)} * shape.head_dim;
          key.assign(keys.begin() + earlier, keys.begin() + earlier + shape.head_dim);
        }
        std::byte* place = entries_place(static_cast<std::int32_t>(row), entry);
        quantize_row(shape.format, key.data(), shape.head_dim, place);
        dequantize_row(shape.format, place, shape.head_dim, key.data());
        keys.insert(keys.end(), key.begin(), key.end());
      }
    }
  }

  std::vector<float>& weights() { return weights_; }

  /// All rows, or `only_row`. `candidates` goes in with kRestrict.
  Lists run(CpuLevel level, device::ThreadPool& threads, CandidateUse use, std::vector<std::int32_t> candidates = {},
            bool wants_scores = true, std::int32_t only_row = -1) const {
    const std::int32_t first_row = std::max(only_row, 0);
    const std::int32_t num_rows = only_row >= 0 ? 1 : static_cast<std::int32_t>(shape_.num_visible.size());
    const std::int32_t first = cu_seqlens_[first_row];
    const std::int32_t count = cu_seqlens_[first_row + num_rows] - first;
    std::vector<std::int32_t> cu_seqlens(cu_seqlens_.begin() + first_row,
                                         cu_seqlens_.begin() + first_row + num_rows + 1);
    for (std::int32_t& end : cu_seqlens) end -= first;
    Lists result;
    result.lists.assign(std::int64_t{count} * shape_.top_k, -7);
    result.blocks.assign(std::int64_t{count} * shape_.max_blocks, -7);
    if (use == CandidateUse::kRestrict) {
      const auto from = candidates.begin() + std::int64_t{first} * shape_.max_blocks;
      result.blocks.assign(from, from + std::int64_t{count} * shape_.max_blocks);
    }
    if (wants_scores) result.scores.assign(std::int64_t{count} * scores_stride(), -7.0F);
    device::Stream stream{.cpu_level = level, .threads = &threads};
    index_select(stream, {.q = q_.data() + std::int64_t{first} * shape_.num_heads * shape_.head_dim,
                          .weights = weights_.data() + std::int64_t{first} * shape_.num_heads,
                          .num_heads = shape_.num_heads,
                          .head_dim = shape_.head_dim,
                          .keys = entries_,
                          .cu_seqlens = cu_seqlens,
                          .block_tables = std::span(block_tables_).subspan(std::int64_t{first_row} * max_blocks_),
                          .max_blocks_per_row = max_blocks_,
                          .num_visible = std::span(num_visible_).subspan(first, count),
                          .use = use,
                          .candidates = {shape_.block_size, shape_.max_blocks, result.blocks.data()},
                          .rounds_bf16 = shape_.rounds_bf16,
                          .top_k = shape_.top_k,
                          .lists = result.lists.data(),
                          .scores = wants_scores ? result.scores.data() : nullptr,
                          .scores_stride = scores_stride()});
    return result;
  }

  /// The definition, by sorting everything.
  Lists expected(CandidateUse use, const std::vector<std::int32_t>& candidates = {}) const {
    Lists result{.blocks = candidates};
    for (std::size_t row = 0; row < shape_.num_visible.size(); ++row) {
      for (std::int32_t token = cu_seqlens_[row]; token < cu_seqlens_[row + 1]; ++token) {
        std::vector<float> scores(scores_stride(), -kInfinity);
        for (std::int32_t entry = 0; entry < num_visible_[token]; ++entry) {
          const std::int32_t* blocks = candidates.data() + std::int64_t{token} * shape_.max_blocks;
          if (use == CandidateUse::kRestrict &&
              std::find(blocks, blocks + shape_.max_blocks, entry / shape_.block_size) == blocks + shape_.max_blocks) {
            continue;
          }
          scores[entry] = score(token, row, entry);
        }
        result.scores.insert(result.scores.end(), scores.begin(), scores.end());
        append_best(scores, shape_.top_k, result.lists);
        if (use != CandidateUse::kChoose) continue;
        std::vector<float> best(scores_stride() / shape_.block_size + 1, -kInfinity);
        for (std::int32_t entry = 0; entry < num_visible_[token]; ++entry) {
          best[entry / shape_.block_size] = std::max(best[entry / shape_.block_size], scores[entry]);
        }
        if (num_visible_[token] > 0) best[(num_visible_[token] - 1) / shape_.block_size] = kInfinity;
        append_best(best, shape_.max_blocks, result.blocks);
      }
    }
    return result;
  }

 private:
  std::int64_t scores_stride() const {
    return num_visible_.empty() ? 1 : std::max(1, std::ranges::max(num_visible_) + 2);
  }

  std::byte* entries_place(std::int32_t row, std::int32_t entry) {
    const std::int32_t block = block_tables_[row * max_blocks_ + entry / shape_.entries_per_block];
    return memory_.data() + block * entries_.block_stride + entry % shape_.entries_per_block * entries_.entry_bytes;
  }

  float rounded(float value) const {
    return shape_.rounds_bf16 ? device::float_from_bf16(device::bf16_from_float(value)) : value;
  }

  float score(std::int32_t token, std::size_t row, std::int32_t entry) const {
    float sum = 0.0F;
    for (std::int32_t head = 0; head < shape_.num_heads; ++head) {
      const std::int64_t q = (std::int64_t{token} * shape_.num_heads + head) * shape_.head_dim;
      float dot = 0.0F;
      for (std::int32_t group = 0; group < shape_.head_dim; group += 32) {
        // Exact in fp32, so in any order.
        dot += static_cast<float>(std::inner_product(q_.begin() + q + group, q_.begin() + q + group + 32,
                                                     keys_[row].begin() + entry * shape_.head_dim + group, 0.0));
      }
      const float positive = rounded(dot) > 0.0F ? rounded(dot) : 0.0F;
      sum += rounded(weights_[std::int64_t{token} * shape_.num_heads + head] * positive);
    }
    return rounded(sum);
  }

  static void append_best(const std::vector<float>& scores, std::int32_t count, std::vector<std::int32_t>& to) {
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(scores.size()); ++i) {
      if (scores[i] > -kInfinity) order.push_back(i);
    }
    std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
    order.resize(std::min<std::size_t>(order.size(), count));
    std::ranges::sort(order);
    order.resize(count, -1);
    to.insert(to.end(), order.begin(), order.end());
  }

  Shape shape_;
  std::int32_t num_tokens_ = 0;
  std::int32_t max_blocks_ = 1;
  std::vector<std::int32_t> cu_seqlens_{0}, num_visible_, block_tables_;
  PagedEntries entries_;
  device::Buffer memory_;
  std::vector<float> q_, weights_;
  std::vector<std::vector<float>> keys_;  // per row, [entries, head_dim]
};

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> result{CpuLevel::kReference};
  if (device::detect_cpu_level() >= CpuLevel::kAvx2) result.push_back(device::detect_cpu_level());
  return result;
}

class Index : public testing::Test {
 protected:
  /// Chooses freely, chooses blocks, and chooses within those.
  void expect_right(const Shape& shape) {
    const World world(shape);
    const Lists expected = world.expected(CandidateUse::kChoose);
    const Lists restricted = world.expected(CandidateUse::kRestrict, expected.blocks);
    for (const CpuLevel level : levels()) {
      SCOPED_TRACE(device::cpu_level_name(level));
      EXPECT_EQ(world.run(level, threads_, CandidateUse::kNone).lists, expected.lists);
      EXPECT_EQ(world.run(level, threads_, CandidateUse::kChoose), expected);
      EXPECT_EQ(world.run(level, threads_, CandidateUse::kRestrict, expected.blocks), restricted);
      const Lists without_scores = world.run(level, threads_, CandidateUse::kChoose, {}, false);
      EXPECT_EQ(without_scores.lists, expected.lists);
      EXPECT_EQ(without_scores.blocks, expected.blocks);
      EXPECT_EQ(world.run(level, threads_, CandidateUse::kRestrict, expected.blocks, false).lists, restricted.lists);
    }
  }

  device::ThreadPool threads_{2, false};
};

TEST_F(Index, HeadsAndDimensions) {
  for (const std::int32_t num_heads : {1, 2, 5, 16, 32}) {
    for (const std::int32_t head_dim : {32, 64, 96, 128, 256, 288}) {
      SCOPED_TRACE(testing::Message() << num_heads << " heads of " << head_dim);
      expect_right({.num_heads = num_heads, .head_dim = head_dim, .num_visible = {{67}, {40, 41}}});
    }
  }
}

TEST_F(Index, NumbersOfEntries) {
  // A row with one entry for each token, one with an entry for every second (specification, A.5), empty rows.
  Shape shape{.num_visible = {{}, {}, {0, 1, 1, 2, 2, 3}, {}, {31, 32, 33, 34}, {63, 64, 65}, {}}};
  for (std::int32_t i = 0; i < 40; ++i) shape.num_visible[0].push_back(i);
  expect_right(shape);
  for (const std::int32_t entries_per_block : {1, 7, 64, 500}) {
    shape.entries_per_block = entries_per_block;
    expect_right(shape);
  }
}

TEST_F(Index, LongLists) {
  // Several pieces of work, whose edges are not those of blocks.
  for (const std::int32_t block_size : {1, 3, 8, 100}) {
    SCOPED_TRACE(block_size);
    expect_right({.num_heads = 3,
                  .top_k = 50,
                  .block_size = block_size,
                  .max_blocks = 30,
                  .num_visible = {{2047, 2048, 2049}, {6300}, {49, 50, 51}}});
  }
  expect_right({.top_k = 3000, .max_blocks = 700, .num_visible = {{2999, 3001, 5601}}});
}

TEST_F(Index, OtherFormats) {
  for (const QuantFormat format : {QuantFormat::kF8Block32, QuantFormat::kF4Block16}) {
    expect_right({.head_dim = 64, .format = format, .num_visible = {{100}, {3, 40}}});
  }
}

TEST_F(Index, RoundedScores) {
  expect_right({.num_heads = 8, .head_dim = 64, .top_k = 20, .rounds_bf16 = true, .num_visible = {{300, 301}, {77}}});
}

// The specification's A.7: 2500 blocks of which 2048 are kept, the newest among them.
TEST_F(Index, CandidatesOf20000Entries) {
  const Shape shape{.num_heads = 1,
                    .top_k = 512,
                    .entries_per_block = 64,
                    .block_size = 8,
                    .max_blocks = 2048,
                    .num_visible = {{20000, 16384}}};
  expect_right(shape);
  const World world(shape);
  const std::vector<std::int32_t> blocks =
      world.run(device::detect_cpu_level(), threads_, CandidateUse::kChoose).blocks;
  EXPECT_EQ(blocks[2047], 2499);
  EXPECT_EQ(blocks[2048 + 2047], 2047);  // all of 16384 entries
  EXPECT_EQ(std::ranges::count(blocks, -1), 0);
}

TEST_F(Index, ABatchGivesTheListsOfEachRowAlone) {
  Shape shape{.num_heads = 4, .head_dim = 64, .top_k = 16};
  for (std::int32_t row = 0; row < 12; ++row) {
    std::vector<std::int32_t>& visible = shape.num_visible.emplace_back();
    for (std::int32_t i = 0; i < row % 5; ++i) visible.push_back(row * row * 11 + i / 2);
  }
  const World world(shape);
  for (const CpuLevel level : levels()) {
    const Lists together = world.run(level, threads_, CandidateUse::kChoose, {}, false);
    for (const int num_threads : {1, 3}) {
      device::ThreadPool threads(num_threads, false);
      Lists one_by_one;
      for (std::int32_t row = 0; row < 12; ++row) {
        if (row % 5 == 0) continue;
        const Lists alone = world.run(level, threads, CandidateUse::kChoose, {}, false, row);
        one_by_one.lists.insert(one_by_one.lists.end(), alone.lists.begin(), alone.lists.end());
        one_by_one.blocks.insert(one_by_one.blocks.end(), alone.blocks.begin(), alone.blocks.end());
      }
      EXPECT_EQ(one_by_one, together);
    }
  }
}

TEST_F(Index, WeightsThatAreNotANumberChooseNothing) {
  World world({.top_k = 8, .num_visible = {{40}, {40}}});
  const std::vector<std::int32_t> healthy = world.run(CpuLevel::kReference, threads_, CandidateUse::kNone).lists;
  world.weights()[0] = std::nanf("");
  for (const CpuLevel level : levels()) {
    const std::vector<std::int32_t> lists = world.run(level, threads_, CandidateUse::kNone).lists;
    EXPECT_EQ(std::count(lists.begin(), lists.begin() + 8, -1), 8);
    EXPECT_TRUE(std::equal(lists.begin() + 8, lists.end(), healthy.begin() + 8));
  }
}

TEST_F(Index, EmptyBatchDoesNothing) {
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  const std::vector<std::int32_t> cu_seqlens{0};
  index_select(stream, {.num_heads = 1, .head_dim = 32, .cu_seqlens = cu_seqlens, .top_k = 1});
}

TEST(Best, TakesTheLowerPlacesOfEqualRanks) {
  std::mt19937 random(3);
  for (const std::uint32_t num_values : {1U, 2U, 30U, 0xFFFFFFFFU}) {
    for (const std::int32_t count : {1, 2, 99, 100, 101}) {
      std::vector<index::Rank> ranks(100);
      for (index::Rank& rank : ranks) rank = random() % num_values * (num_values < 100 ? 0x01000000 : 1);
      std::vector<std::int32_t> expected;
      for (std::int32_t i = 0; i < 100; ++i) {
        if (ranks[i] > 0) expected.push_back(i);
      }
      std::ranges::stable_sort(expected, [&](std::int32_t a, std::int32_t b) { return ranks[a] > ranks[b]; });
      expected.resize(std::min<std::size_t>(expected.size(), count));
      std::ranges::sort(expected);
      std::vector<std::int32_t> places(count);
      places.resize(index::find_best(ranks, count, places.data()));
      EXPECT_EQ(places, expected);
    }
  }
}

TEST(Best, RanksOrderAsScores) {
  const std::vector<float> rising{-3e38F, -1.0F, -1e-40F, 0.0F, 1e-40F, 1.0F, 3e38F, kInfinity};
  for (std::size_t i = 1; i < rising.size(); ++i) EXPECT_LT(index::rank_of(rising[i - 1]), index::rank_of(rising[i]));
  EXPECT_EQ(index::rank_of(-0.0F), index::rank_of(0.0F));
  EXPECT_GT(index::rank_of(rising[0]), 0U);
  EXPECT_EQ(index::rank_of(-kInfinity), 0U);
  EXPECT_EQ(index::rank_of(std::nanf("")), 0U);
  EXPECT_LT(index::rank_of(kInfinity), index::kFirstRank);
}

}  // namespace
}  // namespace thalweg::kernels
