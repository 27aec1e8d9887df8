#include "worker/logits_run.h"

#include <gtest/gtest.h>

#include <vector>

#include "device/thread_pool.h"
#include "worker/fake_model.h"

namespace thalweg::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

std::vector<float> logits_of(const Tokens& ids, const LogitsOptions& options,
                             std::vector<std::int32_t>* pieces = nullptr) {
  FakeModel model(FakeModelOptions{});
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

TEST(LogitsRun, ChunksAndSingleStepsGiveTheSameLogits) {
  Tokens ids;
  for (int i = 0; i < 43; ++i) ids.push_back(i * i % 101);
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

TEST(LogitsRun, RefusesWhatTheModelCannotTake) {
  FakeModel model(FakeModelOptions{});
  device::ThreadPool threads(1, false);
  const device::Stream stream{.threads = &threads};
  EXPECT_FALSE(LogitsRun::create(model, stream, 513, {}).has_value());
  EXPECT_FALSE(LogitsRun::create(model, stream, 0, {}).has_value());
  EXPECT_FALSE(LogitsRun::create(model, stream, 8, {.chunk = -1}).has_value());
  auto run = LogitsRun::create(model, stream, 4, {});
  const auto sink = [](std::int32_t, std::int32_t, const float*) -> Status {
    return fail(ErrorCode::kUnavailable, "disk full");
  };
  EXPECT_EQ(run->run(Tokens{1, 101}, sink).error().message, "ids[1] is 101; valid ids are 0 to 100");
  EXPECT_EQ(run->run(Tokens{-1}, sink).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(run->run(Tokens(5, 1), sink).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(run->run(Tokens{1}, sink).error().message, "disk full");
}

}  // namespace
}  // namespace thalweg::worker
