#include "base/request_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "thalweg/request.h"

namespace thalweg {
namespace {

constexpr std::int32_t kVocabSize = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct FloatCase {
  const char* name;
  float SamplingParams::*field;
  std::vector<float> good;
  std::vector<float> bad;
};

TEST(RequestRules, FloatRangesAtAndBeyondTheirEnds) {
  const FloatCase cases[] = {
      {"temperature", &SamplingParams::temperature, {0.0F, 1.0F, 2.0F}, {-0.01F, 2.01F, 5.0F}},
      {"top_p", &SamplingParams::top_p, {1e-6F, 1.0F}, {0.0F, -1.0F, 1.001F}},
      {"min_p", &SamplingParams::min_p, {0.0F, 1.0F}, {-0.1F, 2.0F}},
      {"repetition_penalty", &SamplingParams::repetition_penalty, {0.1F, 1.3F, 10.0F}, {0.0F, -1.0F, 100.0F}},
      {"presence_penalty", &SamplingParams::presence_penalty, {-2.0F, 2.0F}, {-2.1F, 100.0F}},
      {"frequency_penalty", &SamplingParams::frequency_penalty, {-2.0F, 2.0F}, {-2.1F, 100.0F}},
  };
  for (const FloatCase& one : cases) {
    SamplingParams sampling;
    for (float value : one.good) {
      sampling.*one.field = value;
      EXPECT_TRUE(validate_sampling(sampling, kVocabSize)) << one.name << ' ' << value;
    }
    std::vector<float> bad = one.bad;
    bad.insert(bad.end(), {kNan, kInf, -kInf});
    for (float value : bad) {
      sampling.*one.field = value;
      const Status status = validate_sampling(sampling, kVocabSize);
      ASSERT_FALSE(status) << one.name << ' ' << value;
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(status.error().param, one.name);
    }
  }
}

TEST(RequestRules, MessagesNameValueAndRange) {
  EXPECT_EQ(validate_sampling({.top_p = 0.0F}, kVocabSize).error().message, "top_p is 0, must be a number in (0, 1]");
  EXPECT_EQ(describe(request_number_rule("max_tokens")), "must be an integer of at least 0");
  EXPECT_EQ(describe(request_number_rule("seed")), "must be an integer of 64 bits");
}

TEST(RequestRules, IdsOutsideTheVocabularyNameTheirField) {
  for (std::int32_t id : {-1, kVocabSize, std::numeric_limits<std::int32_t>::max()}) {
    SamplingParams bias, allowed, bad, stop;
    bias.logit_bias = {{id, 1.0F}};
    allowed.allowed_token_ids = {0, id};
    bad.bad_words = {{1}, {2, id}};
    stop.stop_token_ids = {id};
    EXPECT_EQ(validate_sampling(bias, kVocabSize).error().param, "logit_bias");
    EXPECT_EQ(validate_sampling(allowed, kVocabSize).error().param, "allowed_token_ids");
    EXPECT_EQ(validate_sampling(bad, kVocabSize).error().param, "bad_words");
    EXPECT_EQ(validate_sampling(stop, kVocabSize).error().param, "stop_token_ids");
    GenerateRequest request;
    request.prompt_ids = {1, id};
    EXPECT_EQ(validate_request(request, kVocabSize).error().param, "prompt");
  }
  SamplingParams last;
  last.logit_bias = {{kVocabSize - 1, -100.0F}};
  EXPECT_TRUE(validate_sampling(last, kVocabSize));
  last.logit_bias = {{0, kNan}};
  EXPECT_EQ(validate_sampling(last, kVocabSize).error().param, "logit_bias");
  last.logit_bias = {{0, 100.5F}};
  EXPECT_EQ(validate_sampling(last, kVocabSize).error().param, "logit_bias");
}

TEST(RequestRules, CountsAreLimited) {
  SamplingParams sampling;
  sampling.logit_bias.assign(kMaxLogitBiases + 1, {1, 0.0F});
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "logit_bias");
  sampling = {};
  sampling.bad_words.assign(kMaxBadWords + 1, {1});
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "bad_words");
  sampling.bad_words = {{}};
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "bad_words");
  sampling = {};
  sampling.stop_token_ids.assign(kMaxStopTokenIds + 1, 1);
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "stop_token_ids");
  sampling = {};
  sampling.top_k = -1;  // off, like 0
  EXPECT_TRUE(validate_sampling(sampling, kVocabSize));
  sampling.top_k = -2;
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "top_k");
  sampling = {};
  sampling.num_logprobs = kMaxLogprobs + 1;
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "logprobs");
  sampling.num_logprobs = -2;
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "logprobs");
}

TEST(RequestRules, AnAllowListMustLeaveSomething) {
  SamplingParams sampling;
  sampling.allowed_token_ids = {5, 6};
  sampling.bad_words = {{5}, {6, 7}};
  EXPECT_TRUE(validate_sampling(sampling, kVocabSize));
  sampling.bad_words = {{5}, {6}};
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "allowed_token_ids");
  sampling.bad_words.clear();
  sampling.stop_token_ids = {5, 6};
  EXPECT_TRUE(validate_sampling(sampling, kVocabSize));
  sampling.min_tokens = 1;
  EXPECT_EQ(validate_sampling(sampling, kVocabSize).error().param, "allowed_token_ids");
}

TEST(RequestRules, WholeRequest) {
  GenerateRequest good;
  good.prompt_ids = {1, 2, 3};
  EXPECT_TRUE(validate_request(good, kVocabSize));

  const auto param_of = [&](auto change) {
    GenerateRequest request = good;
    change(request);
    const Status status = validate_request(request, kVocabSize);
    return status ? std::string("accepted") : status.error().param;
  };
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.prompt_ids.clear(); }), "prompt");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.max_tokens = -1; }), "max_tokens");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.max_tokens = 0; }), "accepted");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.num_sequences = 0; }), "n");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.num_sequences = 1'000'000'000; }), "n");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.num_prompt_logprobs = 21; }), "prompt_logprobs");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.timeout_s = 0.0; }), "timeout");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.timeout_s = std::nan(""); }), "timeout");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.cache_salt.assign(200, 'x'); }), "cache_salt");
  EXPECT_EQ(param_of([](GenerateRequest& r) { r.sampling.min_tokens = r.max_tokens + 1; }), "min_tokens");
}

}  // namespace
}  // namespace thalweg
