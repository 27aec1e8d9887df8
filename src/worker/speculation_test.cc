// Drafts of a draft model through the worker: they may save steps and never change what comes out.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "device/thread_pool.h"
#include "sampling/chi_square.h"
#include "sampling/draw.h"
#include "sampling/scan.h"
#include "worker/fake_draft_model.h"
#include "worker/make_worker.h"
#include "worker/step_driver.h"

namespace thalweg::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kVocab = 40;
const FakeModelOptions kModel{.vocab_size = kVocab, .window = 4, .max_draft_tokens = 5, .replay_tokens = 4};

struct Worker {
  Worker(std::unique_ptr<models::Model> model, WorkerOptions options) : threads(2, /*pin=*/false) {
    if (options.max_num_seqs == 0) options.max_num_seqs = 16;
    options.kv_cache_bytes = 1 << 20;
    auto made =
        make_cpu_worker(std::move(model), {.cpu_level = device::detect_cpu_level(), .threads = &threads}, options);
    CHECK(made.has_value());
    executor = std::move(*made);
  }

  std::vector<DrivenOutput> run(const std::vector<DrivenRequest>& requests, const DriverOptions& options = {}) {
    return StepDriver(*executor, options).run(requests);
  }

  device::ThreadPool threads;
  std::unique_ptr<step::StepExecutor> executor;
};

WorkerOptions drafting(AcceptanceMethod acceptance = AcceptanceMethod::kMatch) {
  return {.num_draft_tokens = 5, .speculation = {.source = DraftSource::kModel, .acceptance = acceptance}};
}

Worker with_drafts(const FakeDraftOptions& draft, const WorkerOptions& options = drafting()) {
  return {std::make_unique<FakeModelWithDrafts>(kModel, draft), options};
}

/// Greedy, sampled and filtered ones, with and without penalties and logprobs.
std::vector<DrivenRequest> requests_of_all_kinds(int count) {
  std::mt19937 random(5);
  std::vector<DrivenRequest> requests;
  for (int i = 0; i < count; ++i) {
    DrivenRequest request;
    request.prompt.resize(1 + random() % 20);
    for (auto& token : request.prompt) token = static_cast<std::int32_t>(random() % kVocab);
    request.seed = random();
    request.max_tokens = 30 + static_cast<std::int32_t>(random() % 30);
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 3 == 0 ? 0.0F : 0.5F + 0.3F * static_cast<float>(i % 4);
    if (i % 4 == 1) sampling.top_k = 8;
    if (i % 5 == 2) sampling.top_p = 0.8F;
    if (i % 6 == 4) sampling.repetition_penalty = 1.2F;
    if (i % 7 == 5) sampling.bad_words = {{3}, {1, 2}};
    if (i % 8 == 6) sampling.allowed_token_ids = {1, 2, 5, 8, 13, 21, 34};
    if (i % 2 == 0) sampling.num_logprobs = i % 4;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<DrivenOutput> without_drafts(const std::vector<DrivenRequest>& requests) {
  return Worker(std::make_unique<FakeModel>(kModel), {}).run(requests);
}

void expect_all_equal(const std::vector<DrivenOutput>& a, const std::vector<DrivenOutput>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(a[i], b[i]);
  }
}

/// Accepted drafts per step that continued; all but the first step of a sequence do.
double mean_accepted(const std::vector<DrivenOutput>& outputs) {
  double num_tokens = 0.0;
  double num_steps = 0.0;
  for (const DrivenOutput& output : outputs) {
    num_tokens += static_cast<double>(output.token_ids.size()) - 1.0;
    num_steps += output.num_steps - 1.0;
  }
  return num_tokens / num_steps - 1.0;
}

TEST(Speculation, MatchingDraftsNeverChangeTheOutput) {
  const auto requests = requests_of_all_kinds(40);
  const auto expected = without_drafts(requests);
  for (const float error : {0.0F, 1.0F, 30.0F}) {
    SCOPED_TRACE(error);
    for (const int in_flight : {1, 2}) {
      auto worker = with_drafts({.error = error});
      expect_all_equal(worker.run(requests, {.chunk = 7, .in_flight = in_flight, .max_drafts = 5, .preempt_every = 9}),
                       expected);
    }
  }
}

TEST(Speculation, DraftsAreDrawnByTheNumbersOfTheTarget) {
  auto requests = requests_of_all_kinds(30);
  for (DrivenRequest& request : requests) request.sampling.repetition_penalty = 1.0F;
  EXPECT_GT(mean_accepted(with_drafts({}).run(requests, {.max_drafts = 5})), 4.0)
      << "the model itself as draft model: all drafts of sampled sequences hold, too";
  const double close = mean_accepted(with_drafts({.error = 0.3F}).run(requests, {.max_drafts = 5}));
  const double far = mean_accepted(with_drafts({.error = 3.0F}).run(requests, {.max_drafts = 5}));
  EXPECT_GT(close, 2.0);
  EXPECT_LT(far, close);
}

TEST(Speculation, RejectionHoldsMoreAndLeavesGreedyOutputAlone) {
  auto requests = requests_of_all_kinds(40);
  const auto expected = without_drafts(requests);
  const FakeDraftOptions draft{.error = 1.0F};
  const auto rejecting = with_drafts(draft, drafting(AcceptanceMethod::kRejection)).run(requests, {.max_drafts = 5});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_FALSE(rejecting[i].failed);
    if (requests[i].sampling.temperature == 0.0F) expect_equal(rejecting[i], expected[i]);
  }
  EXPECT_GT(mean_accepted(rejecting), mean_accepted(with_drafts(draft).run(requests, {.max_drafts = 5})));
}

/// Of the first three tokens together, from the model's own logits.
std::vector<double> exact_distribution(const FakeModelOptions& options, const DrivenRequest& request) {
  const std::int32_t n = options.vocab_size;
  // One request per token and position, greedy with all logprobs: the logits up to a constant.
  const auto follows = [&](Tokens text) {
    DrivenRequest probe{.prompt = std::move(text), .max_tokens = 1};
    probe.sampling.temperature = 0.0F;
    probe.sampling.num_logprobs = n;
    const auto output = Worker(std::make_unique<FakeModel>(options), {}).run({probe});
    std::vector<float> logits(static_cast<std::size_t>(n));
    for (const TokenLogprob& top : output[0].logprobs[0].top) {
      logits[static_cast<std::size_t>(top.token_id)] = top.logprob;
    }
    sampling::RowScratch scratch;
    const sampling::RowLoops& loops = sampling::row_loops(device::detect_cpu_level());
    CHECK(sampling::scan_row(loops, logits, scratch));
    const sampling::DrawParams params{request.sampling.temperature, request.sampling.top_k, request.sampling.top_p};
    const auto kept = sampling::filter_row(loops, logits, params, scratch);
    const double total = sampling::spread_kept(kept, n, scratch);
    std::vector<double> p;
    for (const float weight : scratch.weights) p.push_back(weight / total);
    return p;
  };
  std::map<std::int32_t, std::vector<double>> after;  // logits depend on the last token alone
  for (std::int32_t token = 0; token < n; ++token) after[token] = follows({token});
  std::vector<double> joint;
  for (std::int32_t a = 0; a < n; ++a) {
    for (std::int32_t b = 0; b < n; ++b) {
      for (std::int32_t c = 0; c < n; ++c) {
        joint.push_back(after[request.prompt.back()][static_cast<std::size_t>(a)] *
                        after[a][static_cast<std::size_t>(b)] * after[b][static_cast<std::size_t>(c)]);
      }
    }
  }
  return joint;
}

TEST(Speculation, OutputHasTheModelsDistribution) {
  const FakeModelOptions model{.vocab_size = 6, .order = 1};
  DrivenRequest request{.prompt = {2}, .max_tokens = 3};
  request.sampling.temperature = 2.5F;
  request.sampling.top_p = 0.9F;
  const std::vector<double> expected = exact_distribution(model, request);
  std::vector<DrivenRequest> requests(3000, request);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].seed = i;
  for (const DraftSource source : {DraftSource::kModel, DraftSource::kNgram}) {
    for (const AcceptanceMethod acceptance : {AcceptanceMethod::kMatch, AcceptanceMethod::kRejection}) {
      WorkerOptions options = drafting(acceptance);
      options.max_num_seqs = 64;
      options.speculation.source = source;
      Worker worker(std::make_unique<FakeModelWithDrafts>(model, FakeDraftOptions{.error = 2.0F}), options);
      const auto outputs = worker.run(requests, {.max_drafts = 2});
      std::vector<int> counts(expected.size());
      for (const DrivenOutput& output : outputs) {
        std::size_t index = 0;
        for (const std::int32_t token : output.token_ids) index = index * 6 + static_cast<std::size_t>(token);
        ++counts[index];
      }
      const auto result = sampling::chi_square(counts, expected);
      EXPECT_LT(result.value, result.limit) << static_cast<int>(source) << " " << static_cast<int>(acceptance);
    }
  }
}

TEST(Speculation, ADraftModelThatFailsHurtsNobody) {
  const auto requests = requests_of_all_kinds(40);
  const auto expected = without_drafts(requests);
  for (const float min_survival : {0.0F, 0.3F}) {
    WorkerOptions options = drafting();
    options.speculation.min_survival = min_survival;
    auto worker = with_drafts({.nan_after = 7}, options);
    expect_all_equal(worker.run(requests, {.in_flight = 2, .max_drafts = 5}), expected);
  }
  for (const DrivenOutput& output :
       with_drafts({.nan_after = 7}, drafting(AcceptanceMethod::kRejection)).run(requests, {.max_drafts = 5})) {
    EXPECT_FALSE(output.failed);
  }
}

TEST(Speculation, ConfidencesOfTheStepBeforeCutWhatIsVerified) {
  WorkerOptions options = drafting();
  options.speculation.min_survival = 0.4F;
  DrivenRequest request{.prompt = {1}, .max_tokens = 31};
  request.sampling.temperature = 0.0F;
  auto worker = with_drafts({.confidences = {0.9F, 0.8F, 0.5F, 0.9F, 0.9F}}, options);  // 0.9, 0.72, 0.36
  const DrivenOutput output = worker.run({request}, {.max_drafts = 5})[0];
  // The first token, 5 + 1 while nothing is known, then 2 + 1.
  EXPECT_EQ(output.num_steps, 1 + 1 + (31 - 1 - 6) / 3);
  EXPECT_EQ(output.num_draft_tokens, 5 + 2 * 8);
}

TEST(Speculation, ForcedAcceptanceHasItsMean) {
  WorkerOptions options = drafting();
  options.speculation.forced_acceptance = 2.51;
  std::vector<DrivenRequest> requests(20, {.prompt = {1, 2}, .max_tokens = 200});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].seed = i;
    requests[i].sampling.num_logprobs = i % 2 == 0 ? 1 : -1;
  }
  const FakeDraftOptions bad{.error = 30.0F};
  const auto outputs = with_drafts(bad, options).run(requests, {.max_drafts = 5});
  EXPECT_NEAR(mean_accepted(outputs), 2.51, 0.05);
  for (const DrivenOutput& output : outputs) {
    for (std::size_t i = 0; i < output.logprobs.size(); ++i) {
      ASSERT_EQ(output.logprobs[i].chosen.token_id, output.token_ids[i]);
    }
  }
  expect_all_equal(with_drafts(bad, options).run(requests, {.max_drafts = 5}), outputs);
}

TEST(Speculation, OnePassServesAllRequestsOfAStep) {
  int num_passes = 0;
  std::vector<DrivenRequest> requests(16, {.prompt = {1, 2}, .max_tokens = 31});
  auto worker = with_drafts({.num_passes = &num_passes});
  worker.run(requests, {.max_drafts = 5});
  EXPECT_EQ(num_passes, 5);
}

TEST(Speculation, WhatCannotBeIsRefused) {
  device::ThreadPool threads(1, /*pin=*/false);
  const auto refused = [&](const WorkerOptions& options, bool has_draft_model) {
    std::unique_ptr<models::Model> model = std::make_unique<FakeModel>(kModel);
    if (has_draft_model) model = std::make_unique<FakeModelWithDrafts>(kModel, FakeDraftOptions{.block_size = 3});
    const auto made = make_cpu_worker(std::move(model), {.threads = &threads}, options);
    return made ? std::string() : made.error().message;
  };
  EXPECT_NE(refused(drafting(), false).find("without one"), std::string::npos);
  EXPECT_EQ(refused(drafting(), true), "") << "a smaller block is used as it is";
  WorkerOptions options = drafting();
  options.speculation.forced_acceptance = 6.0;
  EXPECT_NE(refused(options, true), "");
  options.speculation = {.source = DraftSource::kModel, .min_survival = 1.5F};
  EXPECT_NE(refused(options, true), "");
}

}  // namespace
}  // namespace thalweg::worker
