#include "sampling/row_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace thalweg::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(int n, unsigned seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) x = normal(random);
  return row;
}

std::vector<const RowLoops*> versions() {
  std::vector<const RowLoops*> all{&portable_row_loops()};
  if (device::detect_cpu_level() >= device::CpuLevel::kAvx2) all.push_back(&avx2_row_loops());
  return all;
}

struct Outcome {
  bool good = false;
  std::vector<float> maxima, weights, sums, cut, cut_sums;
  double exp_sum = 0.0;
  RowMass mass;
  std::int32_t before = 0;
};

Outcome run(const RowLoops& loops, const std::vector<float>& row) {
  const auto n = static_cast<std::int32_t>(row.size());
  const auto num_blocks = static_cast<std::size_t>(num_row_blocks(n));
  Outcome out;
  out.maxima.resize(num_blocks);
  out.sums.resize(num_blocks);
  out.weights.resize(row.size());
  out.good = loops.block_maxima(row.data(), n, out.maxima.data());
  float max = -kInfinity;
  for (const float x : out.maxima) max = std::max(max, x);
  out.exp_sum = loops.exp_sum(row.data(), n, max);
  loops.weigh(row.data(), n, max, 1.25F, 1e-3F, out.weights.data(), out.sums.data());
  out.mass = loops.mass_from(row.data(), out.weights.data(), n, max - 2.0F);
  out.before = loops.count_before(row.data(), n, row[row.size() / 2], n / 2);
  out.cut = out.weights;
  out.cut_sums = out.sums;
  loops.cut_weights(row.data(), n, row[row.size() / 2], n / 2, out.cut.data(), out.cut_sums.data());
  return out;
}

TEST(RowLoops, AgreeWithDoublesAndWithEachOther) {
  for (const int n : {1, 7, 8, 127, 128, 129, 1000, 49152, 50001}) {
    std::vector<float> row = random_row(n, static_cast<unsigned>(n), 3.0F);
    if (n > 100) {
      row[static_cast<std::size_t>(n / 2 + 7)] = row[static_cast<std::size_t>(n / 2)];
      row[static_cast<std::size_t>(n / 2 - 7)] = row[static_cast<std::size_t>(n / 2)];
      row[3] = -kInfinity;
    }
    const Outcome first = run(portable_row_loops(), row);
    EXPECT_TRUE(first.good);

    float max = -kInfinity;
    for (const float x : row) max = std::max(max, x);
    double exp_sum = 0.0;
    double mass = 0.0;
    int count = 0;
    int before = 0;
    const float pivot = row[row.size() / 2];
    for (int i = 0; i < n; ++i) {
      const float x = row[static_cast<std::size_t>(i)];
      exp_sum += std::exp(double{x} - double{max});
      const double weight = std::exp((double{x} - double{max}) * 1.25);
      const float found = first.weights[static_cast<std::size_t>(i)];
      if (weight >= 1.001e-3) {
        ASSERT_NEAR(found, weight, 1e-6 * weight + 2e-7);
      } else if (weight < 0.999e-3) {
        ASSERT_EQ(found, 0.0F);
      }
      if (x >= max - 2.0F) mass += weight, ++count;
      const bool is_before = x > pivot || (x == pivot && i < n / 2);
      before += is_before;
      ASSERT_EQ(first.cut[static_cast<std::size_t>(i)], is_before || i == n / 2 ? found : 0.0F);
    }
    EXPECT_NEAR(first.exp_sum, exp_sum, 1e-6 * exp_sum);
    EXPECT_NEAR(first.mass.mass, mass, 1e-5 * mass);
    EXPECT_EQ(first.mass.count, count);
    EXPECT_EQ(first.before, before);
    for (std::size_t b = 0; b < first.maxima.size(); ++b) {
      float block_max = -kInfinity;
      double cut_sum = 0.0;
      for (int i = static_cast<int>(b) * kRowBlock; i < std::min(n, static_cast<int>(b + 1) * kRowBlock); ++i) {
        block_max = std::max(block_max, row[static_cast<std::size_t>(i)]);
        cut_sum += first.cut[static_cast<std::size_t>(i)];
      }
      ASSERT_EQ(first.maxima[b], block_max);
      ASSERT_NEAR(first.cut_sums[b], cut_sum, 1e-5 * cut_sum + 1e-6);
    }

    for (const RowLoops* loops : versions()) {
      const Outcome other = run(*loops, row);
      EXPECT_EQ(other.exp_sum, first.exp_sum);
      EXPECT_EQ(other.mass.mass, first.mass.mass);
      EXPECT_EQ(other.before, first.before);
      EXPECT_EQ(other.maxima, first.maxima);
      EXPECT_EQ(other.weights, first.weights);
      EXPECT_EQ(other.sums, first.sums);
      EXPECT_EQ(other.cut, first.cut);
      EXPECT_EQ(other.cut_sums, first.cut_sums);
    }
  }
}

TEST(RowLoops, FindWhatCannotBeDrawnFromWhereverItIs) {
  for (const RowLoops* loops : versions()) {
    for (const int n : {5, 128, 300}) {
      std::vector<float> maxima(static_cast<std::size_t>(num_row_blocks(n)));
      for (int i = 0; i < n; ++i) {
        std::vector<float> row(static_cast<std::size_t>(n), 1.0F);
        row[static_cast<std::size_t>(i)] = -kInfinity;
        EXPECT_TRUE(loops->block_maxima(row.data(), n, maxima.data()));
        row[static_cast<std::size_t>(i)] = kInfinity;
        EXPECT_FALSE(loops->block_maxima(row.data(), n, maxima.data()));
        row[static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_FALSE(loops->block_maxima(row.data(), n, maxima.data()));
      }
    }
  }
}

TEST(RowLoops, ExpIsAccurateToTheLastBits) {
  EXPECT_EQ(row_exp(0.0F), 1.0F);
  EXPECT_EQ(row_exp(-0.0F), 1.0F);
  EXPECT_EQ(row_exp(-87.5F), 0.0F);
  EXPECT_EQ(row_exp(-kInfinity), 0.0F);
  double worst = 0.0;
  for (float x = 0.0F; x > -87.0F; x -= 0.00137F) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(row_exp(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2.0 * std::numeric_limits<float>::epsilon());
}

}  // namespace
}  // namespace thalweg::sampling
