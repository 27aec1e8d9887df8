// The small rules about one sequence: order, seeds, ends, targets, and how events are grouped.
#include "scheduler/sequence.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler/event_outbox.h"
#include "scheduler/preemption.h"
#include "scheduler/stop_condition.h"

namespace thalweg::scheduler {
namespace {

class DeliveryCounter final : public EventSink {
 public:
  void deliver(std::vector<Event> events) override {
    ++num_deliveries;
    num_events += events.size();
  }
  int num_deliveries = 0;
  std::size_t num_events = 0;
};

std::shared_ptr<Request> make(GenerateRequest request, std::uint64_t id = 1) {
  static const kv_cache::BlockHasher kHasher(1);
  if (request.prompt_ids.empty()) request.prompt_ids = {1, 2, 3, 4, 5};
  return make_request(RequestId{id}, std::move(request), std::make_shared<DeliveryCounter>(), QueuePlace(), 0.0,
                      {kHasher, 2, true});
}

TEST(Sequence, SeedsAreAFixedDerivation) {
  std::set<std::uint64_t> seeds;
  for (std::int32_t i = 0; i < 100; ++i) seeds.insert(sequence_seed(42, i));
  EXPECT_EQ(seeds.size(), 100U);
  EXPECT_EQ(sequence_seed(42, 0), 42U);
  EXPECT_EQ(sequence_seed(42, 3), sequence_seed(42, 3));
  EXPECT_NE(sequence_seed(42, 1), sequence_seed(43, 0));
  GenerateRequest unseeded;
  EXPECT_NE(make(unseeded)->sequences[0].seed, make(unseeded)->sequences[0].seed);
}

TEST(Sequence, PromptHashesCoverFullBlocksOnly) {
  EXPECT_EQ(make({})->prompt_hashes.size(), 2U);
  GenerateRequest salted;
  salted.cache_salt = "x";
  EXPECT_NE(make({})->prompt_hashes, make(salted)->prompt_hashes);
}

TEST(Sequence, TheLastTokenIsNeverComputed) {
  GenerateRequest request;
  request.max_tokens = 3;
  const auto made = make(request);
  Sequence& sequence = made->sequences[0];
  EXPECT_EQ(sequence.num_target_tokens(), 5);
  sequence.min_tokens_in_flight = 1;
  EXPECT_EQ(sequence.num_target_tokens(), 6);
  sequence.output_ids = {7, 8};
  EXPECT_EQ(sequence.num_target_tokens(), 7);
  request.max_tokens = 0;
  EXPECT_EQ(make(request)->sequences[0].num_target_tokens(), 5);
}

TEST(RunsBefore, PriorityThenArrivalThenIndex) {
  GenerateRequest request;
  request.num_sequences = 2;
  const auto first = make(request, 1);
  const auto second = make(request, 2);
  request.priority = -1;
  const auto urgent = make(request, 3);
  const RunsBefore before;
  EXPECT_TRUE(before(&first->sequences[0], &first->sequences[1]));
  EXPECT_TRUE(before(&first->sequences[1], &second->sequences[0]));
  EXPECT_TRUE(before(&urgent->sequences[1], &first->sequences[0]));
  EXPECT_FALSE(before(&first->sequences[0], &first->sequences[0]));
  EXPECT_TRUE(may_displace(urgent->sequences[0], first->sequences[0]));
  EXPECT_FALSE(may_displace(first->sequences[0], second->sequences[0]));
  EXPECT_FALSE(may_displace(second->sequences[0], urgent->sequences[0]));
}

TEST(FindStop, EndTokensNamedTokensAndLength) {
  constexpr std::int32_t kEos[] = {9};
  GenerateRequest request;
  request.max_tokens = 3;
  request.sampling.stop_token_ids = {8};
  const auto stop_after = [&](std::vector<std::int32_t> output_ids) {
    const auto made = make(request);
    made->sequences[0].output_ids = std::move(output_ids);
    return find_stop(made->sequences[0], kEos);
  };
  EXPECT_FALSE(stop_after({1}));
  EXPECT_EQ(stop_after({9})->reason, FinishReason::kStop);
  EXPECT_FALSE(stop_after({9})->stop_token_id);
  EXPECT_EQ(stop_after({1, 8})->stop_token_id, 8);
  EXPECT_EQ(stop_after({1, 2, 3})->reason, FinishReason::kLength);
  EXPECT_EQ(stop_after({1, 2, 9})->reason, FinishReason::kStop);

  request.sampling.ignore_eos = true;
  EXPECT_FALSE(stop_after({9}));
  EXPECT_EQ(stop_after({8})->stop_token_id, 8) << "named tokens end under ignore_eos";
  request.sampling.ignore_eos = false;
  request.sampling.min_tokens = 1;
  EXPECT_FALSE(stop_after({9}));
  EXPECT_TRUE(stop_after({1, 9}));
}

TEST(EventOutbox, OneCallPerSink) {
  EventOutbox outbox;
  const auto one = std::make_shared<DeliveryCounter>();
  const auto other = std::make_shared<DeliveryCounter>();
  for (int i = 0; i < 3; ++i) {
    outbox.add(one, TokenEvent());
    outbox.add(other, TokenEvent());
  }
  outbox.deliver();
  outbox.deliver();
  EXPECT_EQ(one->num_deliveries, 1);
  EXPECT_EQ(one->num_events, 3U);
  EXPECT_EQ(other->num_deliveries, 1);
  EXPECT_TRUE(outbox.empty());
}

}  // namespace
}  // namespace thalweg::scheduler
