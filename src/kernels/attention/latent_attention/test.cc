// Against the definition in double, over caches whose blocks lie apart and out of order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "device/thread_pool.h"
#include "kernels/attention/latent_attention.h"

namespace thalweg::kernels {
namespace {

constexpr std::int32_t kRowsPerBlock = 4;
constexpr std::int32_t kRowDim = 21;  // no whole number of lanes
constexpr std::int32_t kValueDim = 18;
constexpr std::int32_t kHeads = 19;  // two tasks per query
constexpr float kScale = 0.3F;

std::vector<float> normal_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// What one query sees, in order.
using Rows = std::vector<std::vector<float>>;

std::vector<double> expected_head(std::span<const float> q, const Rows& rows, const float* sink) {
  std::vector<double> scores;
  for (const std::vector<float>& row : rows) {
    double score = 0.0;
    for (std::size_t c = 0; c < row.size(); ++c) score += double{q[c]} * row[c];
    scores.push_back(kScale * score);
  }
  double total = sink != nullptr ? std::exp(double{*sink}) : 0.0;
  for (const double score : scores) total += std::exp(score);
  std::vector<double> out(kValueDim, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += std::exp(scores[i]) / total * rows[i][c];
  }
  return out;
}

class LatentAttention : public ::testing::Test {
 protected:
  /// Two sequences of which the second continues at position 50.
  LatentAttention() {
    for (std::int32_t block = 0; block < kNumBlocks; ++block) {
      block_tables_.push_back(kNumBlocks - 1 - (block % 2 * kBlocksPerRow + block / 2));
    }
    std::ranges::shuffle(block_tables_, std::mt19937(3));
    for (std::size_t token = 0; token < kTokens; ++token)
      positions_.push_back(static_cast<int>(token < 6 ? token : token + 44));
    params_ = {.q = q_.data(),
               .num_heads = kHeads,
               .value_dim = kValueDim,
               .scale = kScale,
               .batch = {.positions = positions_,
                         .cu_seqlens = cu_seqlens_,
                         .context_lens = context_lens_,
                         .block_tables = block_tables_,
                         .max_blocks_per_row = kBlocksPerRow},
               .cache = {.base = memory_.data(),
                         .block_stride = kBlockStride,
                         .rows_per_block = kRowsPerBlock,
                         .row_dim = kRowDim,
                         .format = QuantFormat::kF32}};
    for (std::int32_t sequence = 0; sequence < 2; ++sequence) {
      for (std::int32_t row = 0; row < kBlocksPerRow * kRowsPerBlock; ++row) {
        const auto table =
            std::span(block_tables_).subspan(static_cast<std::size_t>(sequence * kBlocksPerRow), kBlocksPerRow);
        quantize_row(QuantFormat::kF32, cached(sequence, row).data(), kRowDim, params_.cache.row(table, row));
      }
    }
  }

  static std::vector<float> cached(std::int32_t sequence, std::int32_t row) {
    return normal_values(kRowDim, static_cast<unsigned>(1000 * (sequence + 1) + row));
  }
  static std::int32_t sequence_of(std::size_t token) { return token < 6 ? 0 : 1; }

  std::vector<float> run(int num_threads = 3) {
    device::ThreadPool threads(num_threads, false);
    device::Stream stream{.threads = &threads};
    std::vector<float> out(kTokens * kHeads * kValueDim, -7.0F);
    LatentAttentionParams params = params_;
    params.out = out.data();
    latent_attention(stream, params);
    return out;
  }

  template <typename RowsOf>
  void expect(RowsOf rows_of) {
    const std::vector<float> out = run();
    for (std::size_t token = 0; token < kTokens; ++token) {
      for (std::size_t head = 0; head < kHeads; ++head) {
        const float* sink = params_.sinks != nullptr ? params_.sinks + head : nullptr;
        const std::size_t index = token * kHeads + head;
        const auto q = std::span(q_).subspan(index * kRowDim, kRowDim);
        const std::vector<double> expected = expected_head(q, rows_of(token), sink);
        for (std::size_t c = 0; c < expected.size(); ++c) {
          ASSERT_NEAR(out[index * kValueDim + c], expected[c], 2e-6) << "token " << token << " head " << head;
        }
      }
    }
    EXPECT_EQ(run(1), out) << "threads change the sums";
  }

  static constexpr std::size_t kTokens = 10;
  static constexpr std::int32_t kBlocksPerRow = 15;
  static constexpr std::int32_t kNumBlocks = 2 * kBlocksPerRow;
  static constexpr std::int64_t kBlockStride = kRowsPerBlock * kRowDim * 4 + 40;

  std::vector<std::byte> memory_ = std::vector<std::byte>(kNumBlocks * kBlockStride);
  std::vector<float> q_ = normal_values(kTokens * kHeads * kRowDim, 1);
  std::vector<float> sinks_ = normal_values(kHeads, 2);
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> cu_seqlens_{0, 6, static_cast<std::int32_t>(kTokens)};
  std::vector<std::int32_t> context_lens_{6, 54};
  std::vector<std::int32_t> block_tables_;
  LatentAttentionParams params_;
};

TEST_F(LatentAttention, OverAllVisibleRows) {
  std::vector<std::int32_t> num_visible;
  for (const std::int32_t position : positions_) num_visible.push_back(position + 1);
  params_.num_visible = num_visible;
  expect([&](std::size_t token) {
    Rows rows;
    for (std::int32_t row = 0; row < num_visible[token]; ++row) rows.push_back(cached(sequence_of(token), row));
    return rows;
  });
}

TEST_F(LatentAttention, OverListedRowsWithASink) {
  const std::vector<std::int32_t> num_visible(kTokens, 40);
  std::vector<std::int32_t> lists;
  for (std::int32_t token = 0; token < static_cast<std::int32_t>(kTokens); ++token) {
    lists.insert(lists.end(), {token, token + 20, token % 3 == 0 ? -1 : token + 30});
  }
  params_.num_visible = num_visible;
  params_.lists = lists.data();
  params_.max_list = 3;
  params_.sinks = sinks_.data();
  expect([&](std::size_t token) {
    Rows rows;
    for (std::size_t i = 3 * token; i < 3 * token + 3; ++i) {
      if (lists[i] >= 0) rows.push_back(cached(sequence_of(token), lists[i]));
    }
    return rows;
  });
}

TEST_F(LatentAttention, OverAWindowThatBeginsInTheRing) {
  constexpr std::int32_t kWindow = 5;
  constexpr std::int32_t kCapacity = 7;
  const auto row_at = [](std::int32_t sequence, std::int32_t position) {
    return normal_values(kRowDim, static_cast<unsigned>(9000 + 100 * sequence + position));
  };
  std::vector<std::byte> ring_memory(2 * kCapacity * kRowDim * 4);
  std::vector<std::byte> step_rows(kTokens * kRowDim * 4);
  for (std::int32_t position = 43; position < 50; ++position) {
    quantize_row(QuantFormat::kF32, row_at(1, position).data(), kRowDim,
                 ring_memory.data() + (kCapacity + position % kCapacity) * kRowDim * 4);
  }
  for (std::size_t token = 0; token < kTokens; ++token) {
    quantize_row(QuantFormat::kF32, row_at(sequence_of(token), positions_[token]).data(), kRowDim,
                 step_rows.data() + token * kRowDim * 4);
  }
  const std::vector<const std::byte*> rings{ring_memory.data(), ring_memory.data() + kCapacity * kRowDim * 4};
  const std::vector<std::int32_t> num_visible{0, 0, 0, 1, 1, 1, 3, 3, 3, 3};
  params_.window = kWindow;
  params_.step_rows = step_rows.data();
  params_.rings = rings;
  params_.ring_capacity = kCapacity;
  params_.num_visible = num_visible;
  params_.sinks = sinks_.data();
  expect([&](std::size_t token) {
    Rows rows;
    for (std::int32_t p = std::max(0, positions_[token] - kWindow + 1); p <= positions_[token]; ++p) {
      rows.push_back(row_at(sequence_of(token), p));
    }
    for (std::int32_t row = 0; row < num_visible[token]; ++row) rows.push_back(cached(sequence_of(token), row));
    return rows;
  });
}

TEST_F(LatentAttention, LargeScoresDoNotOverflow) {
  const std::vector<std::int32_t> num_visible(kTokens, 50);
  params_.num_visible = num_visible;
  params_.scale = 1e4F;
  for (const float value : run()) ASSERT_TRUE(std::isfinite(value));
}

TEST_F(LatentAttention, RowsAreWrittenWhereTheyAreRead) {
  device::ThreadPool threads(3, false);
  device::Stream stream{.threads = &threads};
  const std::vector<float> x = normal_values(kTokens * kRowDim, 8);
  PagedRows cache = params_.cache;
  cache.format = QuantFormat::kBF16;
  write_rows(stream, cache, params_.batch, x.data());
  for (std::size_t token = 0; token < kTokens; ++token) {
    const auto table =
        std::span(block_tables_).subspan(static_cast<std::size_t>(sequence_of(token) * kBlocksPerRow), kBlocksPerRow);
    std::vector<float> row(kRowDim);
    dequantize_row(cache.format, cache.row(table, positions_[token]), kRowDim, row.data());
    std::vector<float> expected(kRowDim);
    fake_quantize_row(cache.format, x.data() + token * kRowDim, kRowDim, expected.data());
    EXPECT_EQ(row, expected);
  }
}

}  // namespace
}  // namespace thalweg::kernels
