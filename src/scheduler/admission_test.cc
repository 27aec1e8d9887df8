#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace thalweg::scheduler {
namespace {

using testing::HasSubstr;

AdmissionLimits small_limits() {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 64;
  limits.max_cached_tokens = 48;
  limits.max_queued_requests = 2;
  return limits;
}

GenerateRequest request_of(std::size_t num_prompt_tokens, std::int32_t max_tokens) {
  GenerateRequest request;
  request.prompt_ids.assign(num_prompt_tokens, 1);
  request.max_tokens = max_tokens;
  return request;
}

TEST(AdmissionGate, LengthsAtTheirLimits) {
  const AdmissionGate gate(small_limits());
  EXPECT_TRUE(gate.check(request_of(47, 1)));
  EXPECT_TRUE(gate.check(request_of(48, 0)));
  EXPECT_TRUE(gate.check(request_of(1, 47)));
  EXPECT_EQ(gate.check(request_of(48, 1)).error().param, "prompt");
  EXPECT_EQ(gate.check(request_of(49, 0)).error().param, "prompt");
  EXPECT_EQ(gate.check(request_of(47, 2)).error().param, "max_tokens");
  EXPECT_EQ(gate.check(request_of(47, 2'147'483'647)).error().param, "max_tokens");
}

TEST(AdmissionGate, SaysWhichLimitWithBothNumbers) {
  const AdmissionGate gate(small_limits());
  const Error pool = gate.check(request_of(50, 5)).error();
  EXPECT_EQ(pool.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(pool.message, testing::AllOf(HasSubstr("50"), HasSubstr("48"), HasSubstr("KV cache")));
  const Error model = gate.check(request_of(70, 5)).error();
  EXPECT_THAT(model.message, testing::AllOf(HasSubstr("70"), HasSubstr("64"), HasSubstr("model")));
}

TEST(AdmissionGate, AsksTheRuleTable) {
  const AdmissionGate gate(small_limits());
  GenerateRequest request = request_of(4, 4);
  request.prompt_ids[2] = 100;
  EXPECT_EQ(gate.check(request).error().param, "prompt");
  request = request_of(4, 4);
  request.sampling.top_p = 0.0F;
  EXPECT_EQ(gate.check(request).error().param, "top_p");
  EXPECT_EQ(gate.check(request_of(0, 4)).error().param, "prompt");
  EXPECT_EQ(gate.check(request_of(4, -1)).error().param, "max_tokens");
}

TEST(AdmissionGate, PlacesComeBack) {
  AdmissionGate gate(small_limits());
  Result<QueuePlace> first = gate.enter();
  {
    const Result<QueuePlace> second = gate.enter();
    ASSERT_TRUE(first && second);
    const Result<QueuePlace> third = gate.enter();
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(gate.num_queued(), 2);
  }
  EXPECT_EQ(gate.num_queued(), 1);
  QueuePlace moved = std::move(*first);
  EXPECT_EQ(gate.num_queued(), 1);
  moved = QueuePlace();
  EXPECT_EQ(gate.num_queued(), 0);
  gate.close("is shutting down");
  const Result<QueuePlace> late = gate.enter();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(late.error().message, "the engine is shutting down");
}

TEST(AdmissionGate, NeverLetsInMoreThanItsLimit) {
  AdmissionGate gate(small_limits());
  std::atomic<int> num_inside = 0;
  std::atomic<int> most_inside = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const Result<QueuePlace> place = gate.enter();
        if (!place) continue;
        const int inside = ++num_inside;
        for (int seen = most_inside; inside > seen && !most_inside.compare_exchange_weak(seen, inside);) {
        }
        --num_inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most_inside, 2);
  EXPECT_EQ(gate.num_queued(), 0);
}

}  // namespace
}  // namespace thalweg::scheduler
