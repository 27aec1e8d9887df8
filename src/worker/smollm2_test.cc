// The promises of a worker, on a real model: THALWEG_TEST_ASSETS names the folder that holds its file. Without the
// variable these tests are skipped; with it the file must be there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "device/thread_pool.h"
#include "models/registry.h"
#include "weights/checkpoint.h"
#include "worker/logits_run.h"
#include "worker/make_worker.h"
#include "worker/step_driver.h"

namespace thalweg::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

std::unique_ptr<models::Model> load(const std::string& path, device::Stream& stream) {
  auto checkpoint = weights::Checkpoint::open(path);
  CHECK(checkpoint.has_value());
  auto model = models::load_model(**checkpoint, stream, {});
  CHECK(model.has_value());
  return std::move(*model);
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("THALWEG_TEST_ASSETS");
    if (folder == nullptr) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
    path_ = std::string(folder) + "/SmolLM2-135M-Instruct.Q4_1.gguf";
    ASSERT_TRUE(std::ifstream(path_).good()) << path_;
    stream_ = {.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  }

  std::unique_ptr<step::StepExecutor> worker(const WorkerOptions& options) {
    auto made = make_cpu_worker(load(path_, stream_), stream_, options);
    CHECK(made.has_value());
    return std::move(*made);
  }

  static constexpr std::int64_t kCacheBytes = std::int64_t{256} << 20;

  std::string path_;
  device::ThreadPool threads_{2, /*pin=*/false};
  device::Stream stream_;
};

/// Token ids of ordinary text lie among the lower ones; what they say does not matter here.
Tokens some_prompt(std::size_t length, unsigned seed) {
  std::mt19937 random(seed);
  Tokens prompt(length);
  for (auto& token : prompt) token = 20 + static_cast<std::int32_t>(random() % 20000);
  return prompt;
}

/// A prompt that repeats itself, which a model likes to go on with.
Tokens repeating_prompt(std::size_t period, std::size_t length, unsigned seed) {
  const Tokens once = some_prompt(period, seed);
  Tokens prompt;
  while (prompt.size() < length) prompt.push_back(once[prompt.size() % period]);
  return prompt;
}

/// The requests that are watched: greedy and sampled, with logprobs.
std::vector<DrivenRequest> watched_requests() {
  std::vector<DrivenRequest> requests;
  for (unsigned i = 0; i < 4; ++i) {
    DrivenRequest request;
    request.prompt = i < 2 ? some_prompt(20 + 9 * i, i + 1) : repeating_prompt(7, 45 + i, i + 1);
    request.max_tokens = 12;
    request.seed = 40 + i;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    request.sampling.top_p = i == 3 ? 0.9F : 1.0F;
    request.sampling.repetition_penalty = i == 1 ? 1.1F : 1.0F;
    request.sampling.num_logprobs = 3;
    requests.push_back(request);
  }
  requests[0].num_prompt_logprobs = 2;
  return requests;
}

void expect_first_equal(const std::vector<DrivenOutput>& many, const std::vector<DrivenOutput>& few) {
  for (std::size_t i = 0; i < few.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_FALSE(few[i].failed);
    expect_equal(many[i], few[i]);
  }
}

TEST_F(SmolLm2, OneStreamIsTheSameAloneAndInAnyCompany) {
  const auto requests = watched_requests();
  std::vector<DrivenOutput> alone;
  {
    const auto executor = worker({.max_num_seqs = 1, .kv_cache_bytes = kCacheBytes});
    for (const auto& request : requests) alone.push_back(StepDriver(*executor, {}).run({request})[0]);
  }

  const auto executor =
      worker({.max_num_seqs = 64, .max_num_batched_tokens = 256, .kv_cache_bytes = kCacheBytes, .num_draft_tokens = 4});
  {
    SCOPED_TRACE("among 60 others, two steps in flight");
    auto crowd = requests;
    for (unsigned i = 0; i < 60; ++i) {
      DrivenRequest other{
          .prompt = some_prompt(3 + i % 11, 100 + i), .seed = i, .max_tokens = 2 + static_cast<int>(i % 5)};
      crowd.push_back(other);
    }
    expect_first_equal(StepDriver(*executor, {.chunk = 24, .in_flight = 2, .scramble = 3}).run(crowd), alone);
  }
  {
    SCOPED_TRACE("thrown out and computed again");
    expect_first_equal(
        StepDriver(*executor, {.chunk = 16, .in_flight = 2, .preempt_every = 6, .scramble = 4}).run(requests), alone);
  }
  {
    SCOPED_TRACE("with drafts");
    const auto drafted = StepDriver(*executor, {.in_flight = 2, .max_drafts = 4}).run(requests);
    expect_first_equal(drafted, alone);
    EXPECT_GT(drafted[2].num_draft_tokens, 0);
  }
  {
    SCOPED_TRACE("after a prefix hit");
    StepDriver first(*executor, {});
    const DrivenOutput full = first.run({requests[3]})[0];
    StepDriver second(*executor, {.scramble = 8});
    second.keep(full.blocks);
    DrivenRequest hit = requests[3];
    const auto block_size = static_cast<std::size_t>(executor->limits().cache.block_size);
    hit.hit_blocks.assign(full.blocks.begin(),
                          full.blocks.begin() + static_cast<std::ptrdiff_t>((hit.prompt.size() - 1) / block_size));
    EXPECT_FALSE(hit.hit_blocks.empty());
    expect_first_equal(second.run({hit}), {alone[3]});
  }
}

TEST_F(SmolLm2, LogitsAreTheSameInChunksAndOneByOne) {
  const Tokens ids = some_prompt(40, 9);
  const auto logits_of = [&](const LogitsOptions& options) {
    const auto model = load(path_, stream_);
    auto run = LogitsRun::create(*model, stream_, 40, options);
    CHECK(run.has_value());
    std::vector<float> logits;
    const Status status = run->run(ids, [&](std::int32_t, std::int32_t count, const float* values) -> Status {
      logits.insert(logits.end(), values, values + std::int64_t{count} * model->info().vocab_size);
      return {};
    });
    CHECK(status.has_value());
    return logits;
  };
  const std::vector<float> whole = logits_of({});
  EXPECT_EQ(logits_of({.chunk = 13}), whole);
  EXPECT_EQ(logits_of({.chunk = 20, .decode_from = 25}), whole);
}

}  // namespace
}  // namespace thalweg::worker
