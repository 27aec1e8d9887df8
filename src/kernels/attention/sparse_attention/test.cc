// Every version against a naive implementation in double, and the promise that nobody else's tokens change a bit.
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
#include "kernels/attention/sparse_attention.h"

namespace thalweg::kernels {
namespace {

using device::CpuLevel;

/// Tokens [first, first + num_tokens) of a sequence.
struct RowShape {
  std::int32_t first = 0;
  std::int32_t num_tokens = 1;
  std::int32_t begin = 0;        // of the ring
  std::int32_t num_entries = 0;  // that lists may name
};

struct Shape {
  std::int32_t num_heads = 2;
  std::int32_t head_dim = 32;
  std::int32_t window = 8;
  std::int32_t ring_capacity = 16;
  std::int32_t max_list = 6;
  std::int32_t entries_per_block = 4;
  QuantFormat format = QuantFormat::kF4Block16;
  bool sees_whole_step = false;
  bool rounds_bf16 = false;
  std::vector<RowShape> rows;
};

/// Rings, steps, cache and lists of all rows. Memory that nobody should read is 0xFF, NaN as FP8 and as a scale.
class World {
 public:
  explicit World(const Shape& shape, std::uint32_t seed = 1) : shape_(shape), random_(seed) {
    const std::int64_t row_bytes = quant_row_bytes(QuantFormat::kF8Block32, shape.head_dim);
    std::int32_t num_blocks = 1;
    for (const RowShape& row : shape.rows) {
      max_blocks_ = std::max(max_blocks_, (row.num_entries + shape.entries_per_block - 1) / shape.entries_per_block);
    }
    num_blocks += max_blocks_ * static_cast<std::int32_t>(shape.rows.size());
    // In falling order, block 0 is nobody's.
    for (std::int32_t block = num_blocks - 1; block > 0; --block) block_tables_.push_back(block);
    entries_.format = shape.format;
    entries_.entry_bytes = quant_row_bytes(shape.format, shape.head_dim) + 7;
    entries_.entries_per_block = shape.entries_per_block;
    entries_.block_stride = shape.entries_per_block * entries_.entry_bytes + 9;
    cache_ = poisoned(num_blocks * entries_.block_stride);
    entries_.base = cache_.data();

    for (const RowShape& row : shape.rows) add_row(row, row_bytes);
    std::normal_distribution<float> normal;
    q_.resize(positions_.size() * shape.num_heads * shape.head_dim);
    for (float& value : q_) value = normal(random_);
    for (std::int32_t head = 0; head < shape.num_heads; ++head) sinks_.push_back(normal(random_));
  }

  std::vector<float>& sinks() { return sinks_; }
  std::vector<float>& q() { return q_; }
  std::vector<std::int32_t>& lists() { return lists_; }

  /// [tokens, num_heads, head_dim], of all rows or of one.
  std::vector<float> run(CpuLevel level, device::ThreadPool& threads, std::int32_t only_row = -1) const {
    const std::int32_t first_row = std::max(only_row, 0);
    const std::size_t num_rows = only_row >= 0 ? 1 : shape_.rows.size();
    const std::int32_t first = cu_seqlens_[first_row];
    std::vector<std::int32_t> cu_seqlens;
    for (std::size_t i = 0; i <= num_rows; ++i) cu_seqlens.push_back(cu_seqlens_[first_row + i] - first);
    std::vector<WindowRing> rings;
    for (std::size_t row = first_row; row < first_row + num_rows; ++row) {
      rings.push_back({rings_[row].data(), shape_.rows[row].begin});
    }
    const std::int64_t token_size = std::int64_t{shape_.num_heads} * shape_.head_dim;
    std::vector<float> out(cu_seqlens.back() * token_size, -12345.0F);
    device::Stream stream{.cpu_level = level, .threads = &threads};
    sparse_attention(stream,
                     {.q = q_.data() + first * token_size,
                      .num_heads = shape_.num_heads,
                      .head_dim = shape_.head_dim,
                      .scale = scale(),
                      .sinks = sinks_.data(),
                      .positions = std::span(positions_).subspan(first, cu_seqlens.back()),
                      .cu_seqlens = cu_seqlens,
                      .window = shape_.window,
                      .rings = rings,
                      .ring_capacity = shape_.ring_capacity,
                      .step_rows = step_.data() + first * quant_row_bytes(QuantFormat::kF8Block32, shape_.head_dim),
                      .sees_whole_step = shape_.sees_whole_step,
                      .entries = entries_,
                      .block_tables = std::span(block_tables_).subspan(std::int64_t{first_row} * max_blocks_),
                      .max_blocks_per_row = max_blocks_,
                      .lists = shape_.max_list > 0 ? lists_.data() + std::int64_t{first} * shape_.max_list : nullptr,
                      .max_list = shape_.max_list,
                      .rounds_bf16 = shape_.rounds_bf16,
                      .out = out.data()});
    return out;
  }

  /// Only the last `num_queries` tokens of each row ask, all of the row's step rows are there.
  std::vector<float> run_newest(CpuLevel level, device::ThreadPool& threads, std::int32_t num_queries) const {
    const std::int64_t token_size = std::int64_t{shape_.num_heads} * shape_.head_dim;
    std::vector<std::int32_t> positions, lists, cu_seqlens{0};
    std::vector<float> q;
    std::vector<WindowRing> rings;
    for (std::size_t row = 0; row < shape_.rows.size(); ++row) {
      const std::int32_t first = std::max(cu_seqlens_[row], cu_seqlens_[row + 1] - num_queries);
      for (std::int32_t token = first; token < cu_seqlens_[row + 1]; ++token) {
        positions.push_back(positions_[token]);
        q.insert(q.end(), q_.begin() + token * token_size, q_.begin() + (token + 1) * token_size);
        lists.insert(lists.end(), lists_.begin() + token * shape_.max_list,
                     lists_.begin() + (token + 1) * shape_.max_list);
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(positions.size()));
      rings.push_back({rings_[row].data(), shape_.rows[row].begin});
    }
    std::vector<float> out(positions.size() * token_size, -12345.0F);
    device::Stream stream{.cpu_level = level, .threads = &threads};
    sparse_attention(stream, {.q = q.data(),
                              .num_heads = shape_.num_heads,
                              .head_dim = shape_.head_dim,
                              .scale = scale(),
                              .sinks = sinks_.data(),
                              .positions = positions,
                              .cu_seqlens = cu_seqlens,
                              .window = shape_.window,
                              .rings = rings,
                              .ring_capacity = shape_.ring_capacity,
                              .step_rows = step_.data(),
                              .step_cu_seqlens = cu_seqlens_,
                              .entries = entries_,
                              .block_tables = block_tables_,
                              .max_blocks_per_row = max_blocks_,
                              .lists = lists.data(),
                              .max_list = shape_.max_list,
                              .out = out.data()});
    return out;
  }

  std::vector<double> expected() const {
    std::vector<double> result;
    for (std::size_t row = 0; row < shape_.rows.size(); ++row) {
      for (std::int32_t token = cu_seqlens_[row]; token < cu_seqlens_[row + 1]; ++token) {
        const std::vector<const float*> seen = seen_rows(row, token);
        for (std::int32_t head = 0; head < shape_.num_heads; ++head) append_attention(seen, token, head, result);
      }
    }
    return result;
  }

 private:
  static device::Buffer poisoned(std::int64_t num_bytes) {
    device::Buffer buffer(num_bytes);
    std::memset(buffer.data(), 0xFF, buffer.size());
    return buffer;
  }

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }

  double rounded(double value) const {
    if (!shape_.rounds_bf16) return value;
    return device::float_from_bf16(device::bf16_from_float(static_cast<float>(value)));
  }

  /// A random row, stored at `place`.
  std::vector<float> store_row(QuantFormat format, std::byte* place) {
    std::normal_distribution<float> normal;
    std::vector<float> row(shape_.head_dim);
    for (float& value : row) value = normal(random_);
    quantize_row(format, row.data(), shape_.head_dim, place);
    dequantize_row(format, place, shape_.head_dim, row.data());
    return row;
  }

  void add_row(const RowShape& row, std::int64_t row_bytes) {
    const auto index = static_cast<std::int32_t>(rings_.size());
    const std::int32_t end = row.first + row.num_tokens;
    rings_.push_back(poisoned(shape_.ring_capacity * row_bytes));
    std::vector<std::vector<float>>& window = window_.emplace_back(end);
    for (std::int32_t position = std::max(row.begin, row.first - shape_.window); position < row.first; ++position) {
      window[position] =
          store_row(QuantFormat::kF8Block32, rings_.back().data() + position % shape_.ring_capacity * row_bytes);
    }
    for (std::int32_t position = row.first; position < end; ++position) {
      positions_.push_back(position);
      step_.resize(step_.size() + row_bytes);
      window[position] = store_row(QuantFormat::kF8Block32, step_.data() + step_.size() - row_bytes);
    }
    cu_seqlens_.push_back(static_cast<std::int32_t>(positions_.size()));

    std::vector<std::vector<float>>& entries = stored_entries_.emplace_back();
    for (std::int32_t entry = 0; entry < row.num_entries; ++entry) {
      const std::int32_t block = block_tables_[index * max_blocks_ + entry / shape_.entries_per_block];
      entries.push_back(store_row(shape_.format, cache_.data() + block * entries_.block_stride +
                                                     entry % shape_.entries_per_block * entries_.entry_bytes));
    }
    for (std::int32_t i = 0; i < row.num_tokens * shape_.max_list; ++i) {
      const bool is_nothing = row.num_entries == 0 || random_() % 4 == 0;
      lists_.push_back(is_nothing ? -1 : static_cast<std::int32_t>(random_() % row.num_entries));
    }
  }

  /// By the definition: which positions, then which entries.
  std::vector<const float*> seen_rows(std::size_t row, std::int32_t token) const {
    const RowShape& shape = shape_.rows[row];
    const std::int32_t query = positions_[token];
    std::vector<const float*> seen;
    for (std::int32_t position = 0; position < shape.first + shape.num_tokens; ++position) {
      const bool in_window = position > query - shape_.window && position <= query && position >= shape.begin;
      const bool before_drafts = position >= std::max(shape.begin, shape.first - shape_.window);
      if (shape_.sees_whole_step ? before_drafts || position >= shape.first : in_window) {
        seen.push_back(window_[row][position].data());
      }
    }
    for (std::int32_t i = 0; i < shape_.max_list; ++i) {
      const std::int32_t entry = lists_[std::int64_t{token} * shape_.max_list + i];
      if (entry >= 0) seen.push_back(stored_entries_[row][entry].data());
    }
    return seen;
  }

  void append_attention(const std::vector<const float*>& seen, std::int32_t token, std::int32_t head,
                        std::vector<double>& to) const {
    const std::int32_t head_dim = shape_.head_dim;
    const auto q = q_.begin() + (std::int64_t{token} * shape_.num_heads + head) * head_dim;
    std::vector<double> weights;
    for (const float* row : seen) weights.push_back(std::inner_product(q, q + head_dim, row, 0.0) * scale());
    const double highest = weights.empty() ? -1e30 : std::ranges::max(weights);
    double total = std::exp(sinks_[head] - highest);
    for (double& weight : weights) total += weight = std::exp(weight - highest);
    for (std::int32_t d = 0; d < head_dim; ++d) {
      double sum = 0.0;
      for (std::size_t i = 0; i < seen.size(); ++i) sum += rounded(weights[i]) * seen[i][d];
      to.push_back(rounded(sum / total));
    }
  }

  Shape shape_;
  std::mt19937 random_;
  std::int32_t max_blocks_ = 1;
  PagedEntries entries_;
  device::Buffer cache_;
  std::vector<device::Buffer> rings_;
  std::vector<std::byte> step_;
  std::vector<std::int32_t> positions_, cu_seqlens_{0}, block_tables_, lists_;
  std::vector<float> q_, sinks_;
  std::vector<std::vector<std::vector<float>>> window_, stored_entries_;  // per row, [positions or entries][head_dim]
};

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> result{CpuLevel::kReference};
  if (device::detect_cpu_level() >= CpuLevel::kAvx2) result.push_back(device::detect_cpu_level());
  return result;
}

class SparseAttention : public testing::Test {
 protected:
  void expect_close(const Shape& shape) { expect_close(World(shape), 2e-6); }

  void expect_close(const World& world, double tolerance) {
    const std::vector<double> expected = world.expected();
    for (const CpuLevel level : levels()) {
      SCOPED_TRACE(device::cpu_level_name(level));
      const std::vector<float> got = world.run(level, threads_);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << i;
      }
    }
  }

  device::ThreadPool threads_{2, false};
};

TEST_F(SparseAttention, HeadsAndDimensions) {
  for (const std::int32_t num_heads : {1, 3, 4, 7, 8, 9, 13, 64}) {
    for (const std::int32_t head_dim : {32, 64, 96, 512}) {
      SCOPED_TRACE(testing::Message() << num_heads << " heads of " << head_dim);
      expect_close({.num_heads = num_heads, .head_dim = head_dim, .rows = {{30, 1, 0, 20}, {5, 2, 0, 9}}});
    }
  }
}

TEST_F(SparseAttention, Windows) {
  for (const std::int32_t window : {0, 1, 2, 7, 8, 13, 16, 100}) {
    for (const std::int32_t capacity : {window == 0 ? 1 : window, window + 3}) {
      SCOPED_TRACE(testing::Message() << "window " << window << " in " << capacity);
      expect_close({.window = window,
                    .ring_capacity = capacity,
                    .rows = {{0, 1}, {0, 20}, {15, 1}, {16, 1}, {17, 4}, {33, 40}, {127, 2}, {200, 1}}});
    }
  }
}

// As after a replay: rows before are not there.
TEST_F(SparseAttention, RingsThatBeginLate) {
  for (const bool sees_whole_step : {false, true}) {
    expect_close({.sees_whole_step = sees_whole_step,
                  .rows = {{30, 3, 30, 4}, {30, 3, 29}, {30, 3, 25}, {30, 1, 24}, {30, 12, 22}, {30, 12, 1}}});
  }
  expect_close({.rows = {{30, 5, 32, 4}}});  // even some of the step's own
}

TEST_F(SparseAttention, BlocksOfDrafts) {
  for (const std::int32_t window : {0, 5, 16}) {
    expect_close({.window = window,
                  .sees_whole_step = true,
                  .rows = {{0, 5}, {3, 5, 0, 4}, {16, 5}, {100, 1, 0, 7}, {101, 16}}});
  }
}

TEST_F(SparseAttention, Lists) {
  for (const std::int32_t max_list : {0, 1, 5, 37, 200}) {
    for (const QuantFormat format : {QuantFormat::kF4Block16, QuantFormat::kF4Block32, QuantFormat::kF8Block32}) {
      expect_close({.max_list = max_list, .format = format, .rows = {{50, 2, 0, 40}, {51, 2, 0, 300}, {3, 1}}});
    }
  }
}

TEST_F(SparseAttention, EntriesThatAreNothingLeaveNoTrace) {
  const Shape shape{.max_list = 8, .rows = {{50, 1, 0, 40}}};
  World world(shape);
  world.lists() = {3, -1, 39, -1, -1, 7, 7, -1};
  World front(shape);
  front.lists() = {3, 39, 7, 7, -1, -1, -1, -1};
  expect_close(world, 2e-6);
  for (const CpuLevel level : levels()) EXPECT_EQ(world.run(level, threads_), front.run(level, threads_));
}

TEST_F(SparseAttention, NothingToSeeGivesZero) {
  World world({.window = 0, .rows = {{50, 2}}});
  for (const CpuLevel level : levels()) {
    EXPECT_EQ(world.run(level, threads_), std::vector<float>(2 * 2 * 32, 0.0F));
  }
}

// Sums in another order than the naive ones fall on the other side of a rounding now and then. Weights that were not
// rounded would show in most results.
TEST_F(SparseAttention, RoundedWeights) {
  const World world({.num_heads = 5, .head_dim = 64, .rounds_bf16 = true, .rows = {{50, 3, 0, 40}, {9, 9}}});
  const std::vector<double> expected = world.expected();
  for (const CpuLevel level : levels()) {
    SCOPED_TRACE(device::cpu_level_name(level));
    const std::vector<float> got = world.run(level, threads_);
    std::size_t num_different = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 0.01) << i;
      num_different += got[i] != expected[i];
    }
    EXPECT_LE(num_different, got.size() / 20);
  }
}

// Weights down to nothing, and sinks far above and below all scores.
TEST_F(SparseAttention, LargeScores) {
  World world({.num_heads = 6, .head_dim = 64, .max_list = 30, .rows = {{50, 3, 0, 40}}});
  for (float& value : world.q()) value *= 40.0F;
  world.sinks() = {-1e4F, 1e4F, 100.0F, 0.0F, -std::numeric_limits<float>::infinity(), 50.0F};
  expect_close(world, 1e-3);
}

TEST_F(SparseAttention, ABatchGivesTheBitsOfEachRowAlone) {
  for (const bool sees_whole_step : {false, true}) {
    Shape shape{.num_heads = 9, .head_dim = 64, .max_list = 40, .sees_whole_step = sees_whole_step};
    for (std::int32_t row = 0; row < 12; ++row) {
      shape.rows.push_back({row * 7, row % 5, row % 3 == 0 ? row : 0, row * row});
    }
    const World world(shape);
    for (const CpuLevel level : levels()) {
      const std::vector<float> together = world.run(level, threads_);
      for (const int num_threads : {1, 3}) {
        device::ThreadPool threads(num_threads, false);
        std::vector<float> one_by_one;
        for (std::int32_t row = 0; row < 12; ++row) {
          if (row % 5 == 0) continue;
          const std::vector<float> alone = world.run(level, threads, row);
          one_by_one.insert(one_by_one.end(), alone.begin(), alone.end());
        }
        EXPECT_EQ(one_by_one, together);
      }
    }
  }
}

TEST_F(SparseAttention, FewerQueriesThanStepRowsGiveTheSameBits) {
  const Shape shape{.rows = {{.first = 21, .num_tokens = 13, .begin = 3, .num_entries = 9},
                             {.first = 0, .num_tokens = 2, .num_entries = 1},
                             {.first = 5, .num_tokens = 30, .num_entries = 17}}};
  const World world(shape);
  const std::int64_t token_size = std::int64_t{shape.num_heads} * shape.head_dim;
  for (const CpuLevel level : {CpuLevel::kReference, device::detect_cpu_level()}) {
    const std::vector<float> all = world.run(level, threads_);
    const std::int32_t num_queries = 11;
    std::vector<float> newest;
    for (const auto& [first, end] : {std::pair{2, 13}, {13, 15}, {34, 45}}) {
      newest.insert(newest.end(), all.begin() + first * token_size, all.begin() + end * token_size);
    }
    EXPECT_EQ(world.run_newest(level, threads_, num_queries), newest);
  }
}

TEST_F(SparseAttention, EmptyBatchDoesNothing) {
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  const std::vector<std::int32_t> cu_seqlens{0};
  sparse_attention(stream, {.num_heads = 1, .head_dim = 32, .cu_seqlens = cu_seqlens});
}

}  // namespace
}  // namespace thalweg::kernels
