#include "worker/logits_run.h"

#include <gtest/gtest.h>

#include <vector>

#include "device/thread_pool.h"
#include "worker/fake_model.h"

namespace thalweg::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

std::vector<float> logits_of(const Tokens& ids, const LogitsOptions& options,
                             std::vector<std::int32_t>* pieces = nullptr, const FakeModelOptions& model_options = {}) {
  FakeModel model(model_options);
  device::ThreadPool threads(1, false);
  auto run = LogitsRun::create(model, {.threads = &threads}, 60, options);
  EXPECT_TRUE(run.has_value());
  std::vector<float> logits;
  // Twice: the second text must not see the first.
  for (const Tokens& text : {Tokens(50, 3), ids}) {
    logits.clear();
    if (pieces != nullptr) pieces->clear();
    const Status status = run->run(text, [&](std::int32_t first, std::int32_t count, const float* values) -> Status {
      EXPECT_EQ(first * 101, static_cast<std::int32_t>(logits.size()));
      logits.insert(logits.end(), values, values + count * 101);
      if (pieces != nullptr) pieces->push_back(count);
      return {};
    });
    EXPECT_TRUE(status.has_value());
  }
  EXPECT_EQ(logits.size(), ids.size() * 101);
  return logits;
}

Tokens squares(int count) {
  Tokens ids;
  for (int i = 0; i < count; ++i) ids.push_back(i * i % 101);
  return ids;
}

TEST(LogitsRun, ChunksAndSingleStepsGiveTheSameLogits) {
  const Tokens ids = squares(43);
  const std::vector<float> whole = logits_of(ids, {});
  std::vector<std::int32_t> pieces;
  EXPECT_EQ(logits_of(ids, {.chunk = 10}, &pieces), whole);
  EXPECT_EQ(pieces, (Tokens{10, 10, 10, 10, 3}));
  EXPECT_EQ(logits_of(ids, {.chunk = 16, .decode_from = 40}, &pieces), whole);
  EXPECT_EQ(pieces, (Tokens{16, 16, 8, 1, 1, 1}));
  EXPECT_EQ(logits_of(ids, {.decode_from = 0}, &pieces), whole);
  EXPECT_EQ(pieces, Tokens(43, 1));
  EXPECT_EQ(logits_of(ids, {.decode_from = 100}), whole);
  EXPECT_EQ(logits_of({}, {}), std::vector<float>());
}

TEST(LogitsRun, AHitIsReplayedAndShownOnce) {
  const Tokens ids = squares(43);
  const std::vector<float> whole = logits_of(ids, {});
  const FakeModelOptions model{.window = 6, .hit_granularity = 2, .replay_tokens = 9};
  std::vector<std::int32_t> pieces;
  EXPECT_EQ(logits_of(ids, {.chunk = 10, .num_hit_tokens = 28}, &pieces, model), whole);
  EXPECT_EQ(pieces, (Tokens{10, 10, 8, 1, 10, 4})) << "the replay begins at 19";
  EXPECT_EQ(logits_of(ids, {.decode_from = 8, .num_hit_tokens = 12}, &pieces, model), whole);
  EXPECT_EQ(logits_of(ids, {.num_hit_tokens = 4}, &pieces, model), whole) << "shorter than the replay";
  EXPECT_EQ(logits_of(ids, {.num_hit_tokens = 28}, &pieces), whole) << "a model without state";
}

TEST(LogitsRun, WhatIsNotComputedInFullIsNaN) {
  const Tokens ids = squares(43);
  const std::vector<float> whole = logits_of(ids, {});
  const FakeModelOptions model{.window = 6, .replay_tokens = 9, .prefill_tail_tokens = 12};
  EXPECT_EQ(logits_of(ids, {}, nullptr, model), whole) << "all are asked for";
  const auto expect_known = [&](const LogitsOptions& options, const std::function<bool(int)>& is_known) {
    const std::vector<float> logits = logits_of(ids, options, nullptr, model);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (is_known(static_cast<int>(i / 101))) {
        ASSERT_EQ(logits[i], whole[i]) << i;
      } else {
        ASSERT_TRUE(std::isnan(logits[i])) << i;
      }
    }
  };
  expect_known({.chunk = 10, .prompt_tail_only = true}, [](int i) { return i >= 31; });
  expect_known({.chunk = 7, .decode_from = 40, .prompt_tail_only = true}, [](int i) { return i >= 28; });
  expect_known({.prompt_tail_only = true, .num_hit_tokens = 24}, [](int i) { return (i >= 12 && i < 24) || i >= 31; });
}

TEST(LogitsRun, CountsWhatItLeavesOut) {
  Tokens full_from;
  FakeModel model({.prefill_tail_tokens = 12,
                   .on_forward = [&](const step::BatchView& batch) { full_from.push_back(batch.full_from[0]); }});
  device::ThreadPool threads(1, false);
  auto run =
      LogitsRun::create(model, {.threads = &threads}, 60, {.chunk = 30, .decode_from = 42, .prompt_tail_only = true});
  const auto sink = [](std::int32_t, std::int32_t, const float*) -> Status { return {}; };
  ASSERT_TRUE(run->run(squares(43), sink));
  EXPECT_EQ(full_from, (Tokens{30, 30, 0})) << "what is left out, the model must know";
  ASSERT_TRUE(run->run(squares(5), sink));
  EXPECT_EQ(run->num_partial_tokens(), 30);
}

TEST(LogitsRun, RefusesWhatTheModelCannotTake) {
  FakeModel model(FakeModelOptions{});
  device::ThreadPool threads(1, false);
  const device::Stream stream{.threads = &threads};
  EXPECT_FALSE(LogitsRun::create(model, stream, 513, {}).has_value());
  EXPECT_FALSE(LogitsRun::create(model, stream, 0, {}).has_value());
  EXPECT_FALSE(LogitsRun::create(model, stream, 8, {.chunk = -1}).has_value());
  EXPECT_EQ(LogitsRun::create(model, stream, 8, {.num_hit_tokens = 6}).error().message,
            "prefix_hit is 6; hits of this model are multiples of 4 tokens");
  auto run = LogitsRun::create(model, stream, 4, {});
  const auto sink = [](std::int32_t, std::int32_t, const float*) -> Status {
    return fail(ErrorCode::kUnavailable, "disk full");
  };
  EXPECT_EQ(run->run(Tokens{1, 101}, sink).error().message, "ids[1] is 101; valid ids are 0 to 100");
  EXPECT_EQ(run->run(Tokens{-1}, sink).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(run->run(Tokens(5, 1), sink).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(run->run(Tokens{1}, sink).error().message, "disk full");
  FakeModel other(FakeModelOptions{});
  auto hit = LogitsRun::create(other, stream, 4, {.num_hit_tokens = 4});
  EXPECT_EQ(hit->run(Tokens{1, 2, 3, 4}, sink).error().message,
            "the text has 4 tokens; a prefix hit of 4 leaves none to compute");
}

}  // namespace
}  // namespace thalweg::worker
