#include "speculative/rejection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <vector>

#include "base/check.h"
#include "sampling/chi_square.h"
#include "sampling/draw.h"
#include "sampling/race.h"
#include "sampling/scan.h"

namespace thalweg::speculative {
namespace {

using sampling::DrawPurpose;

constexpr std::int32_t kVocab = 6;
constexpr int kPositions = 3;

using Row = std::vector<float>;

const sampling::RowLoops& loops() { return sampling::row_loops(device::detect_cpu_level()); }

Row normal_row(std::mt19937& random, float spread) {
  std::normal_distribution<float> normal(0.0F, spread);
  Row row(kVocab);
  for (float& x : row) x = normal(random);
  return row;
}

Row probabilities(const Row& logits, const sampling::DrawParams& params) {
  sampling::RowScratch scratch;
  CHECK(sampling::scan_row(loops(), logits, scratch));
  const sampling::Kept kept = sampling::filter_row(loops(), logits, params, scratch);
  const double total = sampling::spread_kept(kept, kVocab, scratch);
  for (float& weight : scratch.weights) weight = static_cast<float>(weight / total);
  return scratch.weights;
}

/// What follows each token: the target's distributions, and a drafter's.
struct Chain {
  Chain(const sampling::DrawParams& params, float error) {
    std::mt19937 random(3);
    for (std::int32_t i = 0; i < kVocab; ++i) {
      Row logits = normal_row(random, 1.0F);
      p.push_back(probabilities(logits, params));
      const Row errors = normal_row(random, error);
      for (std::size_t v = 0; v < kVocab; ++v) logits[v] += errors[v];
      q.push_back(probabilities(logits, params));
    }
  }

  std::vector<Row> p;
  std::vector<Row> q;
};

/// Twice the weights, because a total need not be one.
double put_weights(const Row& row, sampling::RowScratch& scratch) {
  scratch.weights = row;
  for (float& weight : scratch.weights) weight *= 2.0F;
  scratch.sums = {2.0F};
  return 2.0;
}

std::int32_t draw(const Row& row, const sampling::DrawKey& key) {
  constexpr float kSum = 1.0F;
  return sampling::race_row(key, row, {&kSum, 1});
}

using Acceptor = std::function<Verdict(std::int32_t draft, const float* q, sampling::RowScratch& scratch, double total,
                                       const RejectionKeys& keys)>;

struct Run {
  std::size_t outcome = 0;  // the tokens as a number
  int num_accepted = 0;
};

/// kPositions tokens as the worker makes them, up to two drafts in a step; the drafts are drawn from q, or are its best
/// token where `certain`.
Run run(const Chain& chain, std::uint64_t seed, bool certain, const Acceptor& acceptor, sampling::RowScratch& scratch) {
  Run result;
  std::size_t position = 0;
  std::int32_t last = 0;
  while (position < kPositions) {
    std::array<std::int32_t, 2> drafts{};
    std::array<const Row*, 2> q{};
    for (std::uint32_t i = 0; i < drafts.size(); ++i) {
      q[i] = &chain.q[static_cast<std::size_t>(i == 0 ? last : drafts[i - 1])];
      drafts[i] = certain ? static_cast<std::int32_t>(std::ranges::max_element(*q[i]) - q[i]->begin())
                          : draw(*q[i], {seed, position + i, DrawPurpose::kDraft, i});
    }
    const Acceptance acceptance = accept(drafts.size(), [&](std::size_t i) {
      const Row& p = chain.p[static_cast<std::size_t>(last)];
      Verdict verdict;
      if (i == drafts.size()) {
        verdict.token = draw(p, {seed, position, DrawPurpose::kToken});
      } else {
        const double total = put_weights(p, scratch);
        const RejectionKeys keys{{seed, position, DrawPurpose::kAcceptance}, {seed, position, DrawPurpose::kResidual}};
        verdict = acceptor(drafts[i], certain ? nullptr : q[i]->data(), scratch, total, keys);
      }
      last = verdict.token;
      if (position++ < kPositions) result.outcome = result.outcome * kVocab + static_cast<std::size_t>(last);
      return std::optional(verdict);
    });
    result.num_accepted += acceptance.num_accepted;
  }
  return result;
}

/// The distribution of all kPositions tokens together.
std::vector<double> exact(const Chain& chain) {
  std::vector<double> joint;
  for (std::size_t a = 0; a < kVocab; ++a) {
    for (std::size_t b = 0; b < kVocab; ++b) {
      for (std::size_t c = 0; c < kVocab; ++c) joint.push_back(double{chain.p[0][a]} * chain.p[a][b] * chain.p[b][c]);
    }
  }
  return joint;
}

sampling::ChiSquare measure(const Chain& chain, bool certain, const Acceptor& acceptor, int* num_accepted = nullptr) {
  const std::vector<double> expected = exact(chain);
  std::vector<int> counts(expected.size());
  sampling::RowScratch scratch;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const Run result = run(chain, seed, certain, acceptor, scratch);
    ++counts[result.outcome];
    if (num_accepted != nullptr) *num_accepted += result.num_accepted;
  }
  return sampling::chi_square(counts, expected);
}

const std::vector<sampling::DrawParams> kParams = {
    {.temperature = 1.0F}, {.temperature = 0.7F, .top_p = 0.8F}, {.temperature = 1.3F, .top_k = 4, .min_p = 0.05F}};

TEST(Rejection, TokensHaveTheTargetsDistribution) {
  for (const auto& params : kParams) {
    const Chain chain(params, 0.8F);
    for (const bool certain : {false, true}) {
      int num_accepted = 0;
      const auto result = measure(chain, certain, reject_or_accept, &num_accepted);
      EXPECT_LT(result.value, result.limit) << "top_p " << params.top_p << " certain " << certain;
      EXPECT_GT(num_accepted, 10000) << "drafts must matter";
    }
  }
}

TEST(Rejection, TheStatisticCatchesWrongAcceptors) {
  const Chain chain(kParams[0], 0.8F);
  const auto expect_caught = [&](const char* name, const Acceptor& acceptor) {
    const auto result = measure(chain, false, acceptor);
    EXPECT_GT(result.value, result.limit) << name;
  };
  expect_caught("drafts always hold", [](std::int32_t draft, auto&&...) { return Verdict{draft, true}; });
  expect_caught(
      "a rejected draft is replaced from P",
      [](std::int32_t draft, const float* q, sampling::RowScratch& scratch, double total, const RejectionKeys& keys) {
        const Row p = scratch.weights;
        Verdict verdict = reject_or_accept(draft, q, scratch, total, keys);
        if (!verdict.holds) verdict.token = draw(p, keys.residual);
        return verdict;
      });
  expect_caught(
      "Q is believed to be flatter than it is",
      [](std::int32_t draft, const float* q, sampling::RowScratch& scratch, double total, const RejectionKeys& keys) {
        Row flatter(q, q + kVocab);
        for (float& x : flatter) x = 0.8F * x + 0.2F / kVocab;
        return reject_or_accept(draft, flatter.data(), scratch, total, keys);
      });
  expect_caught(
      "the replacement is drawn by the numbers of the draft",
      [](std::int32_t draft, const float* q, sampling::RowScratch& scratch, double total, const RejectionKeys& keys) {
        sampling::DrawKey same = keys.residual;
        same.purpose = DrawPurpose::kDraft;
        return reject_or_accept(draft, q, scratch, total, {keys.acceptance, same});
      });
}

TEST(Rejection, EqualDistributionsAlwaysHold) {
  const Chain chain(kParams[0], 0.0F);
  sampling::RowScratch scratch;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Row& p = chain.p[seed % kVocab];
    const std::int32_t draft = draw(p, {seed, 0, DrawPurpose::kDraft});
    const double total = put_weights(p, scratch);
    const RejectionKeys keys{{seed, 0, DrawPurpose::kAcceptance}, {seed, 0, DrawPurpose::kResidual}};
    EXPECT_TRUE(reject_or_accept(draft, p.data(), scratch, total, keys).holds);
  }
}

TEST(Rejection, WhatTheTargetExcludesNeverHolds) {
  const Row p = probabilities({0.0F, 3.0F, 2.9F, 0.0F, 0.0F, 0.0F}, {.temperature = 1.0F, .top_k = 2});
  const Row q{0.9F, 0.1F, 0.0F, 0.0F, 0.0F, 0.0F};
  sampling::RowScratch scratch;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const double total = put_weights(p, scratch);
    const RejectionKeys keys{{seed, 0, DrawPurpose::kAcceptance}, {seed, 0, DrawPurpose::kResidual}};
    const Verdict verdict = reject_or_accept(0, q.data(), scratch, total, keys);
    EXPECT_FALSE(verdict.holds);
    EXPECT_TRUE(verdict.token == 1 || verdict.token == 2);
  }
}

}  // namespace
}  // namespace thalweg::speculative
