#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "speculative/accept.h"
#include "speculative/draft_limit.h"
#include "speculative/ngram_proposer.h"
#include "speculative/survival_limit.h"

namespace thalweg::speculative {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens propose(NgramProposer& proposer, const Tokens& tokens, std::int32_t max_drafts, step::SlotId slot = 0) {
  Tokens text = tokens;
  Drafts drafts;
  device::Stream stream;
  const DraftRequest request{.slot = slot, .tokens = &text, .max_drafts = max_drafts};
  proposer.propose(stream, {}, {&request, 1}, drafts);
  EXPECT_EQ(text, tokens);
  const auto found = drafts.of(0);
  return {found.begin(), found.end()};
}

/// The definition, by looking everywhere.
Tokens reference(const Tokens& tokens, std::int32_t max_drafts) {
  const auto size = static_cast<std::int32_t>(tokens.size());
  for (std::int32_t length = NgramProposer::kMaxLength; length >= NgramProposer::kMinLength; --length) {
    for (std::int32_t end = size - 1; end >= length; --end) {
      if (length > size || !std::equal(tokens.begin() + end - length, tokens.begin() + end, tokens.end() - length)) {
        continue;
      }
      Tokens text = tokens;
      for (std::int32_t i = 0; i < max_drafts; ++i) text.push_back(text[static_cast<std::size_t>(end + i)]);
      return {text.begin() + size, text.end()};
    }
  }
  return {};
}

TEST(NgramProposer, ProposesWhatFollowedMostRecently) {
  NgramProposer proposer(1, 8);
  EXPECT_EQ(propose(proposer, {1, 2, 3, 9, 1, 2, 4, 8, 1, 2}, 2), (Tokens{4, 8}));
  proposer.release(0);
  // The longer suffix wins over the more recent one.
  EXPECT_EQ(propose(proposer, {5, 1, 2, 3, 9, 1, 2, 4, 5, 1, 2}, 1), (Tokens{3}));
  proposer.release(0);
  EXPECT_EQ(propose(proposer, {1, 2, 3}, 4), Tokens{});
  proposer.release(0);
  EXPECT_EQ(propose(proposer, {7, 7, 7}, 5), (Tokens{7, 7, 7, 7, 7})) << "a loop goes on";
  proposer.release(0);
  for (const Tokens& text : std::vector<Tokens>{{}, {1}, {1, 1}}) {
    EXPECT_EQ(propose(proposer, text, 3), Tokens{});
    proposer.release(0);
  }
}

TEST(NgramProposer, GrowingTextsAgreeWithTheDefinition) {
  std::mt19937 random(1);
  constexpr int kSlots = 3;
  NgramProposer proposer(kSlots, 8);
  std::vector<Tokens> texts(kSlots);
  for (int round = 0; round < 6000; ++round) {
    const auto slot = static_cast<std::size_t>(random() % kSlots);
    Tokens& text = texts[slot];
    if (random() % 400 == 0) {
      text.clear();
      proposer.release(static_cast<step::SlotId>(slot));
    }
    const auto vocab = slot == 0 ? 2U : slot == 1 ? 5U : 30U;
    for (auto i = random() % 4; i > 0; --i) text.push_back(static_cast<std::int32_t>(random() % vocab));
    const auto max_drafts = static_cast<std::int32_t>(random() % 7);
    const Tokens found = propose(proposer, text, max_drafts, static_cast<step::SlotId>(slot));
    ASSERT_EQ(found, max_drafts == 0 ? Tokens{} : reference(text, max_drafts)) << "round " << round;
  }
}

TEST(NgramProposer, AnswersSeveralRequestsAtOnce) {
  NgramProposer proposer(4, 8);
  Tokens a{1, 2, 3, 1, 2};
  Tokens b{1, 2, 3};
  const std::vector<DraftRequest> requests{{.slot = 2, .tokens = &a, .max_drafts = 3},
                                           {.slot = 0, .tokens = &b, .max_drafts = 3},
                                           {.slot = 1, .tokens = &a, .max_drafts = 1}};
  Drafts drafts;
  device::Stream stream;
  proposer.propose(stream, {}, requests, drafts);
  EXPECT_EQ(drafts.cu_drafts, (Tokens{0, 3, 3, 4}));
  EXPECT_EQ(drafts.token_ids, (Tokens{3, 1, 2, 3}));
  EXPECT_TRUE(drafts.distributions_of(0).empty());
}

TEST(NgramProposer, FollowsWhatHolds) {
  NgramProposer proposer(2, 4);
  const Tokens loop(9, 7);
  EXPECT_EQ(propose(proposer, loop, 4).size(), 4U);
  proposer.observe(0, 4, 1);
  EXPECT_EQ(propose(proposer, loop, 4).size(), 2U);
  proposer.observe(0, 2, 0);
  proposer.observe(0, 1, 0);
  EXPECT_TRUE(propose(proposer, loop, 4).empty()) << "a pause";
  EXPECT_EQ(propose(proposer, loop, 4, 1).size(), 4U) << "another slot";
  proposer.release(0);
  EXPECT_EQ(propose(proposer, loop, 4).size(), 4U) << "a new sequence";
}

TEST(DraftLimit, FollowsAcceptance) {
  DraftLimit limit(8);
  EXPECT_EQ(limit.next(), 8);
  limit.observe(8, 2);
  EXPECT_EQ(limit.next(), 3);
  limit.observe(3, 3);
  EXPECT_EQ(limit.next(), 6);
  limit.observe(6, 6);
  EXPECT_EQ(limit.next(), 8);
  limit.observe(8, 0);
  EXPECT_EQ(limit.next(), 4);
  limit.observe(1, 1);
  EXPECT_EQ(limit.next(), 8);
}

TEST(DraftLimit, PausesWhereNothingHoldsAndComesBack) {
  DraftLimit limit(4);
  int num_drafts = 0;
  for (int step = 0; step < 1000; ++step) {
    if (const std::int32_t n = limit.next(); n > 0) {
      num_drafts += n;
      limit.observe(n, 0);
    }
  }
  EXPECT_LT(num_drafts, 30) << "a sequence without repetition costs next to nothing";
  int waited = 0;
  while (limit.next() == 0) ++waited;
  EXPECT_LE(waited, 64);
  limit.observe(1, 1);
  EXPECT_EQ(limit.next(), 2);
}

TEST(SurvivalLimit, CutsWhereDraftsHardlyHoldTogether) {
  SurvivalLimit limit(5, 0.4F);
  EXPECT_EQ(limit.next(), 5) << "nothing is known yet";
  limit.observe(std::vector{0.9F, 0.8F, 0.7F, 0.6F, 0.9F});  // 0.9, 0.72, 0.50, 0.30
  EXPECT_EQ(limit.next(), 3);
  limit.observe(std::vector{0.1F, 1.0F, 1.0F, 1.0F, 1.0F});
  EXPECT_EQ(limit.next(), 1) << "one is always tried";
  limit.observe(std::vector{1.0F, std::numeric_limits<float>::quiet_NaN(), 1.0F});
  EXPECT_EQ(limit.next(), 1);
  limit.observe(std::vector{1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F});
  EXPECT_EQ(limit.next(), 5);
  SurvivalLimit off(5, 0.0F);
  off.observe(std::vector{0.0F, 0.0F, 0.0F, 0.0F, 0.0F});
  EXPECT_EQ(off.next(), 5);
}

TEST(ForcedAcceptance, HasItsMeanWithTheLeastVariance) {
  for (const double mean : {0.0, 0.3, 2.0, 2.51}) {
    double sum = 0.0;
    for (std::uint64_t position = 0; position < 4000; ++position) {
      const sampling::DrawKey key{17, position, sampling::DrawPurpose::kForcedAcceptance};
      const std::int32_t accepted = forced_acceptance(mean, key);
      EXPECT_EQ(accepted, forced_acceptance(mean, key));
      EXPECT_GE(accepted, std::floor(mean));
      EXPECT_LE(accepted, std::ceil(mean));
      sum += accepted;
    }
    EXPECT_NEAR(sum / 4000, mean, 0.03);
  }
}

TEST(Accept, StopsAtTheFirstDifference) {
  const Tokens drawn{4, 5, 6, 7};
  const auto run = [&](const Tokens& drafts) {
    int num_draws = 0;
    const Acceptance result = accept(drafts.size(), [&](std::size_t i) {
      EXPECT_EQ(static_cast<int>(i), num_draws++);
      return std::optional(Verdict{drawn[i], i < drafts.size() && drawn[i] == drafts[i]});
    });
    EXPECT_EQ(num_draws, result.num_accepted + 1);
    return result.num_accepted;
  };
  EXPECT_EQ(run({}), 0);
  EXPECT_EQ(run({4, 5, 6}), 3);
  EXPECT_EQ(run({4, 9, 6}), 1);
  EXPECT_EQ(run({9, 5, 6}), 0);
}

TEST(Accept, AFailureKeepsWhatWasDrawnBefore) {
  const Acceptance result = accept(3, [](std::size_t i) {
    return i == 2 ? std::nullopt : std::optional(Verdict{static_cast<std::int32_t>(i), true});
  });
  EXPECT_TRUE(result.failed);
  EXPECT_EQ(result.num_accepted, 2);
}

}  // namespace
}  // namespace thalweg::speculative
