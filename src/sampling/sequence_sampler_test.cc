#include "sampling/sequence_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "sampling/logprobs.h"

namespace thalweg::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Tokens = std::vector<std::int32_t>;

const RowLoops& loops() { return row_loops(device::detect_cpu_level()); }

std::vector<float> normal_row(int n, unsigned seed, float spread = 2.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) x = normal(random);
  return row;
}

struct Draw {
  std::optional<std::int32_t> token;
  TokenLogprobs logprobs;
};

Draw draw(const SamplingParams& params, std::vector<float> row, const Tokens& tokens = {1}, int num_prompt_tokens = 1,
          const Tokens& eos = {}, std::uint64_t seed = 9) {
  const SequenceSampler sampler(std::make_shared<SamplingParams>(params), seed, static_cast<std::int32_t>(row.size()),
                                eos, tokens, num_prompt_tokens);
  RowScratch scratch;
  Draw out;
  out.token = sampler.draw(loops(), row, tokens, scratch, &out.logprobs);
  return out;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

TEST(SequenceSampler, GreedyTakesTheLowestIdOfTheBest) {
  std::vector<float> row(500, 0.0F);
  row[77] = row[78] = row[400] = 3.0F;
  EXPECT_EQ(draw(greedy(), row).token, 77);
}

TEST(SequenceSampler, RowsThatCannotBeDrawnFromAreEmpty) {
  for (SamplingParams params : {greedy(), SamplingParams{}, SamplingParams{.top_k = 3}}) {
    for (const int num_logprobs : {-1, 2}) {
      params.num_logprobs = num_logprobs;
      for (const float broken : {kNan, kInfinity}) {
        std::vector<float> row = normal_row(200, 1);
        row[150] = broken;
        EXPECT_FALSE(draw(params, row).token.has_value());
        SamplingParams banned = params;
        banned.bad_words = {{150}};
        EXPECT_FALSE(draw(banned, row).token.has_value()) << "a mask must not hide a broken row";
      }
      EXPECT_FALSE(draw(params, std::vector<float>(200, -kInfinity)).token.has_value());
      std::vector<float> one(200, -kInfinity);
      one[199] = -5.0F;
      EXPECT_EQ(draw(params, one).token, 199);
    }
  }
}

TEST(SequenceSampler, PenaltiesAgreeWithTheirDefinition) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> real(-2.0F, 2.0F);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<float> row = normal_row(40, static_cast<unsigned>(round));
    SamplingParams params = greedy();
    params.repetition_penalty = round % 3 == 0 ? 1.0F : 1.05F + std::abs(real(random));
    params.frequency_penalty = round % 4 == 0 ? 0.0F : real(random);
    params.presence_penalty = round % 5 == 0 ? 0.0F : real(random);
    for (int i = 0; i < round % 4; ++i) {
      params.logit_bias.push_back({static_cast<std::int32_t>(random() % 40), real(random)});
    }
    Tokens tokens(3 + random() % 20);
    for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 40);
    const int num_prompt_tokens = 1 + static_cast<int>(random() % tokens.size());

    std::vector<double> logits(row.begin(), row.end());
    for (const LogitBias& bias : params.logit_bias) logits[static_cast<std::size_t>(bias.token_id)] += bias.bias;
    std::map<int, int> outputs;
    for (std::size_t i = 0; i < tokens.size(); ++i) outputs[tokens[i]] += static_cast<int>(i) >= num_prompt_tokens;
    for (const auto& [id, count] : outputs) {
      double& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0.0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      if (count > 0) logit -= params.frequency_penalty * count + params.presence_penalty;
    }
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(draw(params, row, tokens, num_prompt_tokens).token, best) << "round " << round;

    // The same when the output was appended one by one instead of given at a resumed start.
    const Tokens prompt(tokens.begin(), tokens.begin() + num_prompt_tokens);
    SequenceSampler sampler(std::make_shared<SamplingParams>(params), 9, 40, {}, prompt, num_prompt_tokens);
    for (std::size_t i = prompt.size(); i < tokens.size(); ++i) sampler.append(tokens[i]);
    RowScratch scratch;
    std::vector<float> copy = row;
    ASSERT_EQ(sampler.draw(loops(), copy, tokens, scratch, nullptr), best);
  }
}

TEST(SequenceSampler, HugeWishesStayFinite) {
  SamplingParams params;
  params.repetition_penalty = 1e-38F;
  params.logit_bias = {{3, 3e38F}, {4, -3e38F}};
  std::vector<float> row(10, 2.0F);
  EXPECT_EQ(draw(params, row, {3, 5}).token, 3);
}

TEST(SequenceSampler, MinTokensMasksWhatWouldEnd) {
  SamplingParams params = greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {8, 900, -1};
  std::vector<float> row(20, 0.0F);
  row[7] = 5.0F;
  row[8] = 4.0F;
  row[9] = 3.0F;
  const Tokens eos{7};
  EXPECT_EQ(draw(params, row, {1}, 1, eos).token, 9);
  EXPECT_EQ(draw(params, row, {1, 2}, 1, eos).token, 9);
  EXPECT_EQ(draw(params, row, {1, 2, 3}, 1, eos).token, 7);
  params.ignore_eos = true;
  EXPECT_EQ(draw(params, row, {1}, 1, eos).token, 7) << "an end id that does not end is not masked";
  params.stop_token_ids = {7};
  EXPECT_EQ(draw(params, row, {1}, 1, eos).token, 8);
}

TEST(SequenceSampler, BadWordsAreNotCompleted) {
  SamplingParams params = greedy();
  params.bad_words = {{5}, {1, 2, 6}, {9, 7}, {}, {1000}};
  std::vector<float> row(20, 0.0F);
  row[5] = 5.0F;
  row[6] = 4.0F;
  row[7] = 3.0F;
  EXPECT_EQ(draw(params, row, {1, 2}, 1).token, 7);
  EXPECT_EQ(draw(params, row, {2, 1}, 1).token, 6);
  EXPECT_EQ(draw(params, row, {0, 1, 2}, 3).token, 7) << "the start may lie in the prompt";
  EXPECT_EQ(draw(params, row, {2}, 1).token, 6) << "a word longer than the text so far";
  row[6] = 0.0F;
  EXPECT_EQ(draw(params, row, {1, 9}, 1).token, 0);
}

TEST(SequenceSampler, AllowedIdsLimitEveryPath) {
  SamplingParams params = greedy();
  params.allowed_token_ids = {12, 3, 3, 700, -2};
  const std::vector<float> row = [] {
    std::vector<float> values(20, 1.0F);
    values[12] = 0.5F;
    values[3] = 0.5F;
    return values;
  }();
  EXPECT_EQ(draw(params, row).token, 3);
  for (const SamplingParams& filter : {SamplingParams{}, SamplingParams{.top_k = 1}, SamplingParams{.top_p = 0.1F},
                                       SamplingParams{.temperature = 5.0F, .min_p = 0.9F}}) {
    SamplingParams sampled = filter;
    sampled.allowed_token_ids = params.allowed_token_ids;
    std::map<std::int32_t, int> counts;
    for (std::uint64_t seed = 0; seed < 200; ++seed) ++counts[*draw(sampled, row, {1}, 1, {}, seed).token];
    const bool one = filter.top_k == 1 || filter.top_p < 1.0F;
    EXPECT_EQ(counts.size(), one ? 1U : 2U);
    EXPECT_EQ(counts.count(12), one ? 0U : 1U);
  }
  params.bad_words = {{3}};
  EXPECT_EQ(draw(params, row).token, 12);
  params.bad_words = {{3}, {12}};
  EXPECT_FALSE(draw(params, row).token.has_value()) << "nothing is left";
  params.bad_words.clear();
  params.allowed_token_ids = {700};
  EXPECT_FALSE(draw(params, row).token.has_value());
}

TEST(SequenceSampler, LogprobsAreOfTheRawLogits) {
  SamplingParams params = greedy();
  params.num_logprobs = 5;
  params.logit_bias = {{30, 100.0F}};
  params.repetition_penalty = 1.7F;
  params.bad_words = {{4}};
  std::vector<float> row = normal_row(1000, 5);
  row[500] = row[400] = row[30] = 1.25F;
  row[600] = -kInfinity;
  double max = -1e9;
  for (const float x : row) max = std::max(max, double{x});
  double sum = 0.0;
  for (const float x : row) sum += std::exp(x - max);

  const Draw out = draw(params, row, {30, 500});
  ASSERT_EQ(out.token, 30);
  EXPECT_EQ(out.logprobs.chosen.token_id, 30);
  EXPECT_NEAR(out.logprobs.chosen.logprob, 1.25 - max - std::log(sum), 1e-5);
  const auto num_larger = std::count_if(row.begin(), row.end(), [](float x) { return x > 1.25F; });
  EXPECT_EQ(out.logprobs.chosen.rank, num_larger + 1);
  ASSERT_EQ(out.logprobs.top.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    const TokenLogprob& top = out.logprobs.top[i];
    EXPECT_EQ(top.rank, static_cast<int>(i) + 1);
    EXPECT_NEAR(top.logprob, row[static_cast<std::size_t>(top.token_id)] - max - std::log(sum), 1e-5);
    EXPECT_LE(top.logprob, out.logprobs.top[i == 0 ? 0 : i - 1].logprob);
  }

  RowScratch scratch;
  TokenLogprobs scored;
  ASSERT_TRUE(score_token(loops(), row, 500, 3, scratch, scored));
  EXPECT_EQ(scored.chosen.rank, num_larger + 3) << "ties rank by id";
  ASSERT_TRUE(score_token(loops(), row, 600, 0, scratch, scored));
  EXPECT_EQ(scored.chosen.logprob, kLowestLogprob);
  EXPECT_EQ(scored.chosen.rank, 1000);
  EXPECT_TRUE(scored.top.empty());
  row[3] = kNan;
  EXPECT_FALSE(score_token(loops(), row, 500, 3, scratch, scored));
}

TEST(SequenceSampler, LogprobsDoNotChangeTheDraw) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<float> row = normal_row(3000, seed);
    SamplingParams params{.top_k = static_cast<std::int32_t>(seed % 3) * 20, .top_p = seed % 2 ? 0.9F : 1.0F};
    params.presence_penalty = 0.5F;
    const auto without = draw(params, row, {5, 6, 7}, 1, {}, seed).token;
    params.num_logprobs = 4;
    EXPECT_EQ(draw(params, row, {5, 6, 7}, 1, {}, seed).token, without);
  }
}

TEST(SequenceSampler, SeedAndPositionDecide) {
  const std::vector<float> row = normal_row(5000, 8, 0.3F);
  Tokens first, second, other;
  Tokens tokens{1};
  for (int i = 0; i < 32; ++i) {
    first.push_back(*draw({}, row, tokens, 1, {}, 42).token);
    second.push_back(*draw({}, row, tokens, 1, {}, 42).token);
    other.push_back(*draw({}, row, tokens, 1, {}, 43).token);
    tokens.push_back(0);
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_GT(std::set<std::int32_t>(first.begin(), first.end()).size(), 28U) << "positions draw independently";
  // Prompts of different lengths draw alike: the counter is the output length.
  EXPECT_EQ(*draw({}, row, {1, 2, 3}, 3, {}, 42).token, first[0]);
}

}  // namespace
}  // namespace thalweg::sampling
