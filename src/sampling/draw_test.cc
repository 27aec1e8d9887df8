#include "sampling/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "base/check.h"
#include "sampling/chi_square.h"
#include "sampling/philox.h"
#include "sampling/race.h"
#include "sampling/scan.h"
#include "sampling/select.h"

namespace thalweg::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> normal_row(int n, unsigned seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) x = normal(random);
  return row;
}

/// The definition: sort everything, filter, normalise, in doubles.
std::vector<double> reference(const std::vector<float>& row, const DrawParams& params) {
  std::vector<int> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)]; });
  const auto weight = [&](int id) {
    return std::exp((double{row[static_cast<std::size_t>(id)]} - double{row[static_cast<std::size_t>(order[0])]}) /
                    params.temperature);
  };
  if (params.top_k > 0 && params.top_k < static_cast<int>(order.size())) {
    order.resize(static_cast<std::size_t>(params.top_k));
  }
  while (weight(order.back()) < params.min_p) order.pop_back();
  double total = 0.0;
  for (const int id : order) total += weight(id);
  double sum = 0.0;
  std::size_t num_kept = 0;
  while (num_kept < order.size()) {
    sum += weight(order[num_kept++]);
    if (params.top_p < 1.0F && sum >= params.top_p * total) break;
  }
  std::vector<double> probabilities(row.size(), 0.0);
  for (std::size_t i = 0; i < num_kept; ++i) {
    probabilities[static_cast<std::size_t>(order[i])] = weight(order[i]) / sum;
  }
  return probabilities;
}

const RowLoops& loops() { return row_loops(device::detect_cpu_level()); }

/// A filtered row, ready for many draws.
struct Filtered {
  Filtered(const std::vector<float>& row, const DrawParams& params) {
    CHECK(scan_row(loops(), row, scratch));
    kept = filter_row(loops(), row, params, scratch);
  }
  std::int32_t draw(std::uint64_t position) { return draw_kept(kept, {1234, position, DrawPurpose::kToken}, scratch); }

  RowScratch scratch;
  Kept kept{};
};

std::int32_t draw(const std::vector<float>& row, const DrawParams& params, std::uint64_t position) {
  return Filtered(row, params).draw(position);
}

/// Draws against the reference.
void expect_distribution(const std::vector<float>& row, const DrawParams& params) {
  const std::vector<double> expected = reference(row, params);
  constexpr int kDraws = 20000;
  std::vector<int> counts(row.size(), 0);
  Filtered filtered(row, params);
  for (int i = 0; i < kDraws; ++i) {
    const std::int32_t id = filtered.draw(static_cast<std::uint64_t>(i));
    ASSERT_GE(id, 0);
    ASSERT_LT(id, static_cast<std::int32_t>(row.size()));
    ASSERT_GT(expected[static_cast<std::size_t>(id)], 0.0) << "id " << id << " is excluded";
    ++counts[static_cast<std::size_t>(id)];
  }
  const ChiSquare result = chi_square(counts, expected);
  EXPECT_LT(result.value, result.limit);
}

TEST(Draw, FollowsTheDistribution) {
  const std::vector<float> row = normal_row(300, 1, 2.0F);
  expect_distribution(row, {.temperature = 1.0F});
  expect_distribution(row, {.temperature = 0.5F});
  expect_distribution(row, {.temperature = 3.0F});
  expect_distribution(row, {.temperature = 1.0F, .top_k = 10});
  expect_distribution(row, {.temperature = 1.0F, .top_k = 299});
  expect_distribution(row, {.temperature = 1.5F, .top_p = 0.8F});
  expect_distribution(row, {.temperature = 1.0F, .min_p = 0.05F});
  expect_distribution(row, {.temperature = 1.2F, .top_k = 40, .top_p = 0.9F, .min_p = 0.02F});
  expect_distribution(row, {.temperature = 1.2F, .top_p = 0.9F, .min_p = 0.02F});
}

TEST(Draw, FollowsTheDistributionOfLargeRows) {
  const std::vector<float> row = normal_row(5000, 2, 3.0F);
  expect_distribution(row, {.temperature = 1.0F, .top_k = 50});
  expect_distribution(row, {.temperature = 0.7F, .top_p = 0.9F});
  expect_distribution(row, {.temperature = 0.6F});
}

/// What is kept and its weights, against the definition; and that the draw is of what is kept.
void expect_kept(const std::vector<float>& row, const DrawParams& params) {
  const std::vector<double> expected = reference(row, params);
  Filtered filtered(row, params);
  const std::int32_t drawn = filtered.draw(3);
  RowScratch& scratch = filtered.scratch;
  const double total = spread_kept(filtered.kept, static_cast<std::int32_t>(row.size()), scratch);
  ASSERT_EQ(scratch.weights.size(), row.size());
  // At the border of top_p, sums of floats may keep one of equal share more or less.
  double difference = 0.0;
  for (std::size_t id = 0; id < row.size(); ++id) difference += std::abs(scratch.weights[id] / total - expected[id]);
  EXPECT_LT(difference, 1e-4);
  EXPECT_GT(scratch.weights[static_cast<std::size_t>(drawn)], 0.0F);
  EXPECT_EQ(race_row({1234, 3, DrawPurpose::kToken}, scratch.weights, scratch.sums), drawn)
      << "where it was kept must not matter";
}

TEST(Draw, FlatRowsAreCutWithoutSorting) {
  for (const unsigned seed : {3U, 4U}) {
    const std::vector<float> row = normal_row(50001, seed, 0.5F);
    expect_kept(row, {.temperature = 1.0F});
    expect_kept(row, {.temperature = 1.0F, .top_p = 0.95F});
    expect_kept(row, {.temperature = 2.0F, .top_p = 0.3F});
    expect_kept(row, {.temperature = 1.0F, .top_p = 0.6F, .min_p = 0.1F});
    expect_kept(row, {.temperature = 1.0F, .top_p = std::nextafter(1.0F, 0.0F)});
  }
}

TEST(Draw, EqualValuesAreCutByTheLowestIds) {
  std::vector<float> row(40000, 0.25F);
  expect_kept(row, {.temperature = 1.0F, .top_p = 0.5F});
  for (std::uint64_t i = 0; i < 50; ++i) {
    EXPECT_LT(draw(row, {.temperature = 1.0F, .top_p = 0.5F}, i), 20001);
    EXPECT_LT(draw(row, {.temperature = 1.0F, .top_k = 3}, i), 3);
  }
  // Near zero and of both signs, where halving by value would take long.
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = (i % 2 == 0 ? 1e-40F : -1e-40F) * static_cast<float>(i % 7);
  expect_kept(row, {.temperature = 1.0F, .top_p = 0.37F});
}

TEST(Draw, TinyTopPIsGreedy) {
  std::vector<float> row = normal_row(5000, 5, 1.0F);
  row[17] = row[4000] = 9.0F;
  row[3000] = std::nextafter(9.0F, 0.0F);
  for (const std::uint64_t u : {0, 1, 2}) {
    EXPECT_EQ(draw(row, {.temperature = 1.0F, .top_p = 1e-9F}, u), 17);
    EXPECT_EQ(draw(row, {.temperature = 1.0F, .top_k = 1}, u), 17);
    EXPECT_EQ(draw(row, {.temperature = 1e-3F, .top_k = 1}, u), 17);
  }
  std::set<std::int32_t> best;
  for (std::uint64_t i = 0; i < 40; ++i) {
    best.insert(draw(row, {.temperature = i % 2 == 0 ? 1.0F : 1e-30F, .min_p = 1.0F}, i));
  }
  EXPECT_EQ(best, (std::set<std::int32_t>{17, 4000}));
}

TEST(Draw, NeverPicksWhatIsMaskedOrVanishes) {
  std::vector<float> row(1000, -kInfinity);
  row[500] = -1e30F;
  row[501] = -2e30F;
  for (const DrawParams& params : std::vector<DrawParams>{{.temperature = 1.0F},
                                                          {.temperature = 1.0F, .top_k = 5},
                                                          {.temperature = 1.0F, .top_p = 0.99F},
                                                          {.temperature = 1e-38F, .top_p = 0.99F}}) {
    for (const std::uint64_t u : {0, 1, 2}) EXPECT_EQ(draw(row, params, u), 500);
  }
}

TEST(Draw, SimilarRowsMostlyDrawTheSame) {
  const std::vector<float> row = normal_row(5000, 8, 3.0F);
  std::vector<float> similar = normal_row(5000, 9, 0.2F);
  for (std::size_t i = 0; i < row.size(); ++i) similar[i] += row[i];
  for (const DrawParams& params :
       std::vector<DrawParams>{{.temperature = 1.0F}, {.temperature = 0.8F, .top_p = 0.9F}}) {
    const std::vector<double> p = reference(row, params);
    const std::vector<double> q = reference(similar, params);
    double distance = 0.0;
    for (std::size_t i = 0; i < p.size(); ++i) distance += 0.5 * std::abs(p[i] - q[i]);
    Filtered target(row, params);
    Filtered draft(similar, params);
    int num_equal = 0;
    constexpr int kDraws = 4000;
    for (std::uint64_t i = 0; i < kDraws; ++i) num_equal += target.draw(i) == draft.draw(i);
    // What a race over all ids guarantees; three standard deviations and the second stage off it.
    const double guaranteed = (1.0 - distance) / (1.0 + distance);
    EXPECT_GT(num_equal, kDraws * (guaranteed - 0.03)) << "distance " << distance;
    EXPECT_LT(num_equal, kDraws * (1.0 - distance + 0.03)) << "more than any draw can";
  }
}

TEST(Select, FindsTheBestOfAnyRow) {
  std::mt19937 random(6);
  for (int round = 0; round < 60; ++round) {
    const int n = 1 + static_cast<int>(random() % 3000);
    std::vector<float> row(static_cast<std::size_t>(n));
    // Few different values: ties everywhere.
    for (float& x : row) x = round % 2 == 0 ? static_cast<float>(random() % 20) : static_cast<float>(random()) * 1e-9F;
    std::vector<Candidate> all;
    for (int i = 0; i < n; ++i) all.push_back({row[static_cast<std::size_t>(i)], i});
    std::sort(all.begin(), all.end(), better);
    RowScratch scratch;
    ASSERT_TRUE(scan_row(portable_row_loops(), row, scratch));
    EXPECT_EQ(arg_max(row, scratch.maxima), all[0].id);
    for (const int k : {1, 2, 20, n / 2, n, n + 5}) {
      select_top(row, scratch.maxima, k, scratch.order, scratch.candidates);
      ASSERT_EQ(scratch.candidates.size(), static_cast<std::size_t>(std::min(k, n)));
      for (std::size_t i = 0; i < scratch.candidates.size(); ++i) ASSERT_EQ(scratch.candidates[i].id, all[i].id);
    }
  }
}

}  // namespace
}  // namespace thalweg::sampling
