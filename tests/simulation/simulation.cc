#include "simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <variant>

namespace thalweg::simulator {

void RecordingSink::deliver(std::vector<Event> events) {
  ASSERT_FALSE(events.empty());
  ++num_deliveries_;
  for (Event& event : events) std::visit([this](auto& one) { take(std::move(one)); }, event);
}

const SequenceRecord& RecordingSink::sequence(RequestId id, std::int32_t index) const {
  static const SequenceRecord kNothing;
  const auto found = records_.find({id, index});
  return found == records_.end() ? kNothing : found->second;
}

void RecordingSink::take(StartEvent event) {
  SequenceRecord& record = at(event.request_id, event.sequence_index);
  ASSERT_FALSE(record.start || record.finish) << "started twice, or after its end";
  record.start = std::move(event);
}

void RecordingSink::take(TokenEvent event) {
  SequenceRecord& record = at(event.request_id, event.sequence_index);
  ASSERT_TRUE(record.start && !record.finish) << "a token outside of start and end";
  ASSERT_FALSE(event.token_ids.empty());
  record.token_ids.insert(record.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
  record.logprobs.insert(record.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  record.token_times_s.push_back(clock_.now());
}

void RecordingSink::take(FinishEvent event) {
  SequenceRecord& record = at(event.request_id, event.sequence_index);
  ASSERT_FALSE(record.finish) << "answered twice";
  ASSERT_EQ(event.num_output_tokens, static_cast<std::int32_t>(record.token_ids.size()));
  ASSERT_EQ(event.error.has_value(), event.reason == FinishReason::kError);
  ++num_finished_;
  record.finish = std::move(event);
}

FakeExecutorOptions small_executor() {
  FakeExecutorOptions options;
  options.limits.max_model_len = 256;
  options.limits.max_slots = 8;
  options.limits.max_num_batched_tokens = 64;
  options.limits.num_blocks = 64;
  options.limits.cache.block_size = 4;
  return options;
}

namespace {

ModelDescription describe(const FakeExecutorOptions& executor) {
  ModelDescription model;
  model.name = "fake";
  model.vocab_size = executor.model.vocab_size;
  model.eos_token_ids = executor.model.eos_token_ids;
  return model;
}

}  // namespace

Simulation::Simulation(const FakeExecutorOptions& executor, EngineOptions options)
    : model(executor.model),
      engine(std::make_unique<FakeExecutor>(executor, clock, [this](double time_s) { clock.advance_to(time_s); }),
             describe(executor), options, clock, /*secret_seed=*/1) {}

RequestId Simulation::submit(const GenerateRequest& request) {
  const Result<RequestId> id = engine.submit(request, sink);
  if (!id) {
    ADD_FAILURE() << id.error().message;
    return RequestId{0};
  }
  requests_.emplace(*id, request);
  return *id;
}

bool Simulation::turn() {
  const bool more = engine.turn();
  engine.check_invariants();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_sequences_admitted,
            stats.num_sequences_finished + stats.num_sequences_cancelled + stats.num_sequences_failed +
                static_cast<std::uint64_t>(stats.num_running) + static_cast<std::uint64_t>(stats.num_waiting));
  return more;
}

void Simulation::run(int max_turns) {
  for (int i = 0; i < max_turns; ++i) {
    if (!turn()) return;
  }
  ADD_FAILURE() << "still at work after " << max_turns << " turns";
}

void Simulation::expect_right_answer(RequestId id, std::int32_t index) const {
  const SequenceRecord& record = sequence(id, index);
  ASSERT_TRUE(record.finish) << "request " << static_cast<std::uint64_t>(id) << " was lost";
  const FakeOutput expected = expected_output(model, request(id), index);
  const FinishReason reason = record.finish->reason;
  const bool cut_off = reason == FinishReason::kCancelled ||
                       (reason == FinishReason::kError && record.finish->error->code != ErrorCode::kInternal);
  if (cut_off) {
    ASSERT_LE(record.token_ids.size(), expected.token_ids.size());
    EXPECT_TRUE(std::ranges::equal(record.token_ids, std::span(expected.token_ids).first(record.token_ids.size())));
    return;
  }
  EXPECT_EQ(record.token_ids, expected.token_ids);
  EXPECT_EQ(reason, expected.reason);
  EXPECT_EQ(record.finish->stop_token_id, expected.stop_token_id);
  if (request(id).sampling.num_logprobs >= 0) {
    ASSERT_EQ(record.logprobs.size(), record.token_ids.size());
    for (std::size_t i = 0; i < record.token_ids.size(); ++i) {
      EXPECT_EQ(record.logprobs[i].chosen.token_id, record.token_ids[i]);
    }
  }
  if (request(id).num_prompt_logprobs >= 0 && index == 0 && record.start) {
    const std::vector<std::int32_t>& prompt = request(id).prompt_ids;
    ASSERT_EQ(record.start->prompt_logprobs.size(), prompt.size() - 1);
    for (std::size_t i = 1; i < prompt.size(); ++i) {
      EXPECT_EQ(record.start->prompt_logprobs[i - 1].chosen.token_id, prompt[i]);
    }
  }
}

std::vector<std::int32_t> make_prompt(std::int32_t num_tokens, std::uint64_t seed, std::int32_t vocab_size) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> token_ids(static_cast<std::size_t>(num_tokens));
  for (std::int32_t& token_id : token_ids) {
    token_id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab_size));
  }
  return token_ids;
}

GenerateRequest make_request(std::int32_t num_prompt_tokens, std::int32_t max_tokens, std::uint64_t seed) {
  GenerateRequest request;
  request.prompt_ids = make_prompt(num_prompt_tokens, seed);
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = true;
  return request;
}

}  // namespace thalweg::simulator
