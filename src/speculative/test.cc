#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "speculative/accept.h"
#include "speculative/draft_limit.h"
#include "speculative/ngram_proposer.h"

namespace thalweg::speculative {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens propose(NgramProposer& proposer, const Tokens& tokens, std::int32_t max_drafts, step::SlotId slot = 0) {
  Drafts drafts;
  const DraftRequest request{slot, tokens, max_drafts};
  proposer.propose({&request, 1}, drafts);
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
  NgramProposer proposer(1);
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
  NgramProposer proposer(kSlots);
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
  NgramProposer proposer(4);
  const Tokens a{1, 2, 3, 1, 2};
  const Tokens b{1, 2, 3};
  const std::vector<DraftRequest> requests{{2, a, 3}, {0, b, 3}, {3, a, 0}, {1, a, 1}};
  Drafts drafts;
  proposer.propose(requests, drafts);
  EXPECT_EQ(drafts.cu_drafts, (Tokens{0, 3, 3, 3, 4}));
  EXPECT_EQ(drafts.token_ids, (Tokens{3, 1, 2, 3}));
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

TEST(Accept, StopsAtTheFirstDifference) {
  const Tokens drawn{4, 5, 6, 7};
  const auto run = [&](const Tokens& drafts) {
    int num_draws = 0;
    const Acceptance result = accept(drafts, [&](std::int32_t i) {
      EXPECT_EQ(i, num_draws++);
      return std::optional(drawn[static_cast<std::size_t>(i)]);
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
  const Tokens drafts{1, 2, 3};
  const Acceptance result = accept(drafts, [](std::int32_t i) { return i == 2 ? std::nullopt : std::optional(i + 1); });
  EXPECT_TRUE(result.failed);
  EXPECT_EQ(result.num_accepted, 2);
}

}  // namespace
}  // namespace thalweg::speculative
