// The promises of a worker on a model with state per sequence and a draft model of its own: a tiny calm DeepSeek-V4.1
// from the folder that THALWEG_TEST_ASSETS names. Without the variable these tests are skipped.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/thread_pool.h"
#include "models/registry.h"
#include "weights/checkpoint.h"
#include "worker/make_worker.h"
#include "worker/step_driver.h"

namespace thalweg::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

class DeepseekV41 : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("THALWEG_TEST_ASSETS");
    if (folder == nullptr) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
    path_ = std::string(folder) + "/deepseek_v41/micro-calm";
  }

  /// The prompt's tail is not replayed, so that every result has to be the same bit by bit.
  std::unique_ptr<step::StepExecutor> worker(WorkerOptions options) {
    options.kv_cache_bytes = std::int64_t{256} << 20;
    auto checkpoint = weights::Checkpoint::open(path_);
    CHECK(checkpoint.has_value());
    auto model = models::load_model(**checkpoint, stream_,
                                    {.prefill_tail_tokens = 0,
                                     .replays_whole_hits = true,
                                     .loads_draft_model = options.speculation.source == DraftSource::kModel,
                                     .max_draft_tokens = options.num_draft_tokens});
    if (!model) ADD_FAILURE() << model.error().message;
    CHECK(model.has_value());
    auto made = make_cpu_worker(std::move(*model), stream_, options);
    if (!made) ADD_FAILURE() << made.error().message;
    CHECK(made.has_value());
    return std::move(*made);
  }

  std::string path_;
  device::ThreadPool threads_{2, /*pin=*/false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
};

Tokens some_prompt(std::size_t length, unsigned seed) {
  std::mt19937 random(seed);
  Tokens prompt(length);
  for (auto& token : prompt) token = 3 + static_cast<std::int32_t>(random() % 990);
  return prompt;
}

std::vector<DrivenRequest> requests_of(int count, std::int32_t max_tokens) {
  std::vector<DrivenRequest> requests;
  for (int i = 0; i < count; ++i) {
    DrivenRequest request;
    request.prompt = some_prompt(static_cast<std::size_t>(3 + 7 * i), static_cast<unsigned>(i) + 1);
    request.max_tokens = max_tokens;
    request.seed = 70 + static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(DeepseekV41, GreedyTextIsTheSameWithDraftsOf2000Tokens) {
  std::vector<DrivenRequest> requests = requests_of(20, 2000);
  for (DrivenRequest& request : requests) request.sampling.temperature = 0.0F;
  const auto plain = StepDriver(*worker({.max_num_seqs = 20}), {.in_flight = 2}).run(requests);
  const auto executor =
      worker({.max_num_seqs = 20, .num_draft_tokens = 5, .speculation = {.source = DraftSource::kModel}});
  const auto drafted = StepDriver(*executor, {.in_flight = 2, .max_drafts = 5}).run(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(plain[i].token_ids.size(), 2000U);
    EXPECT_EQ(drafted[i].token_ids, plain[i].token_ids);
    EXPECT_GT(drafted[i].num_draft_tokens, 0);
    EXPECT_LT(drafted[i].num_steps, plain[i].num_steps) << "no draft has held";
  }
}

TEST_F(DeepseekV41, ASequenceIsTheSameAloneAmong63OthersAndAfterPreemption) {
  std::vector<DrivenRequest> watched = requests_of(4, 24);
  for (std::size_t i = 0; i < watched.size(); ++i) {
    watched[i].sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    watched[i].sampling.num_logprobs = 3;
  }
  std::vector<DrivenOutput> alone;
  {
    const auto executor = worker({.max_num_seqs = 1});
    for (const DrivenRequest& request : watched) alone.push_back(StepDriver(*executor, {}).run({request})[0]);
  }
  const auto expect_same = [&](const std::vector<DrivenOutput>& found) {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_FALSE(found[i].failed);
      expect_equal(found[i], alone[i]);
    }
  };
  const WorkerOptions drafting{.max_num_seqs = 64,
                               .max_num_batched_tokens = 256,
                               .num_draft_tokens = 5,
                               .speculation = {.source = DraftSource::kModel}};
  {
    SCOPED_TRACE("among others, in chunks");
    std::vector<DrivenRequest> crowd = watched;
    for (unsigned i = 0; i < 60; ++i) {
      crowd.push_back(
          {.prompt = some_prompt(3 + i % 29, 100 + i), .seed = i, .max_tokens = 2 + static_cast<int>(i % 5)});
    }
    expect_same(StepDriver(*worker({.max_num_seqs = 64, .max_num_batched_tokens = 256}),
                           {.chunk = 11, .in_flight = 2, .scramble = 3})
                    .run(crowd));
  }
  {
    SCOPED_TRACE("after a prefix hit that is replayed from the begin");
    const auto executor = worker({.max_num_seqs = 2});
    StepDriver first(*executor, {});
    const DrivenOutput full = first.run({watched[3]})[0];
    StepDriver second(*executor, {.scramble = 8});
    second.keep(full.blocks);
    DrivenRequest hit = watched[3];
    hit.hit_blocks.assign(full.blocks.begin(), full.blocks.begin() + 1);
    EXPECT_GT(hit.prompt.size(), 17U);
    const DrivenOutput after = second.run({hit})[0];
    EXPECT_FALSE(after.failed);
    expect_equal(after, alone[3]);
  }
  {
    SCOPED_TRACE("with drafts");
    expect_same(StepDriver(*worker(drafting), {.in_flight = 2, .max_drafts = 5}).run(watched));
  }
  {
    SCOPED_TRACE("with drafts, thrown out and computed again");
    expect_same(
        StepDriver(*worker(drafting), {.chunk = 7, .in_flight = 2, .max_drafts = 5, .preempt_every = 5, .scramble = 4})
            .run(watched));
  }
}

}  // namespace
}  // namespace thalweg::worker
