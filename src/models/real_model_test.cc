// Real GGUF files against llama.cpp on the same files (python/record_llama_cpp_vectors.py). Both sides round
// activations to 8 bits, each in its own way, so log-probabilities agree to a tenth or so and near ties may fall either
// way.
//
// THALWEG_TEST_ASSETS names the folder that holds the files; without it these tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/thread_pool.h"
#include "models/registry.h"
#include "models/sequence_batch.h"

namespace thalweg::models {
namespace {

constexpr double kMeanDifference = 0.2;  // of the log-probability of the token that llama.cpp chose
constexpr double kMaxDifference = 0.8;
constexpr double kClearLead = 0.8;  // a recorded lead of the first token over the second that rounding cannot turn

struct Case {
  std::string model;
  std::vector<std::int32_t> prompt;
  struct Candidate {
    std::int32_t id;
    double logprob;
  };
  std::vector<std::vector<Candidate>> steps;  // most likely first
};

Case read_case(const std::string& name) {
  std::ifstream file("tests/golden/real_models/" + name + ".txt");
  Case read;
  for (std::string line, word; std::getline(file, line);) {
    std::istringstream words(line);
    words >> word;
    if (word == "model") words >> read.model;
    if (word == "prompt") {
      for (std::int32_t id = 0; words >> id;) read.prompt.push_back(id);
    }
    if (word == "step") {
      read.steps.emplace_back();
      for (Case::Candidate candidate{}; words >> candidate.id >> candidate.logprob;) {
        read.steps.back().push_back(candidate);
      }
    }
  }
  return read;
}

std::vector<double> log_softmax(const std::vector<float>& logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - max);
  std::vector<double> logprobs;
  for (const float logit : logits) logprobs.push_back(logit - max - std::log(sum));
  return logprobs;
}

class RealModel : public ::testing::TestWithParam<const char*> {};

TEST_P(RealModel, ContinuesAsLlamaCppDoes) {
  const char* assets = std::getenv("THALWEG_TEST_ASSETS");
  if (assets == nullptr) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
  const Case expected = read_case(GetParam());
  ASSERT_FALSE(expected.steps.empty());

  device::ThreadPool threads(2, false);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  const auto checkpoint = weights::Checkpoint::open(std::string(assets) + "/" + expected.model);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto model = load_model(**checkpoint, stream, {});
  ASSERT_TRUE(model) << model.error().message;
  (*model)->reserve(128);

  SequenceBatch sequence(**model, stream, 1, 128);
  std::vector<float> logits = sequence.step({expected.prompt}, false);
  double sum_of_differences = 0.0;
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    const std::vector<Case::Candidate>& top = expected.steps[i];
    const std::vector<double> logprobs = log_softmax(logits);
    const auto best = static_cast<std::int32_t>(std::ranges::max_element(logprobs) - logprobs.begin());
    const double difference = std::abs(logprobs[static_cast<std::size_t>(top[0].id)] - top[0].logprob);
    EXPECT_LT(difference, kMaxDifference) << "step " << i;
    if (top[0].logprob - top[1].logprob > kClearLead) {
      EXPECT_EQ(best, top[0].id) << "step " << i;
    }
    sum_of_differences += difference;
    // What llama.cpp chose goes in, so that one near tie does not end the comparison.
    logits = sequence.step({std::span(&top[0].id, 1)}, false);
  }
  const double mean = sum_of_differences / static_cast<double>(expected.steps.size());
  EXPECT_LT(mean, kMeanDifference);
  RecordProperty("mean_difference", std::to_string(mean));
}

INSTANTIATE_TEST_SUITE_P(Files, RealModel,
                         ::testing::Values("smollm2_capital", "smollm2_story", "gemma3_capital", "gemma3_story"),
                         [](const ::testing::TestParamInfo<const char*>& test) { return std::string(test.param); });

}  // namespace
}  // namespace thalweg::models
