// One engine on a virtual clock, driven turn by turn, with everything it answers written down.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine_loop.h"
#include "simulator/fake_executor.h"
#include "simulator/virtual_clock.h"

namespace thalweg::simulator {

/// Everything that reached one sequence. Fails the test on events out of order.
struct SequenceRecord {
  std::optional<StartEvent> start;
  std::vector<std::int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<double> token_times_s;  // of each TokenEvent
  std::optional<FinishEvent> finish;
};

class RecordingSink final : public EventSink {
 public:
  explicit RecordingSink(const Clock& clock) : clock_(clock) {}
  void deliver(std::vector<Event> events) override;

  const SequenceRecord& sequence(RequestId id, std::int32_t index = 0) const;
  std::size_t num_finished() const { return num_finished_; }
  int num_deliveries() const { return num_deliveries_; }

 private:
  SequenceRecord& at(RequestId id, std::int32_t index) { return records_[{id, index}]; }
  void take(StartEvent event);
  void take(TokenEvent event);
  void take(FinishEvent event);

  const Clock& clock_;
  std::map<std::pair<RequestId, std::int32_t>, SequenceRecord> records_;
  std::size_t num_finished_ = 0;
  int num_deliveries_ = 0;
};

/// Sensible small limits: 8 slots, 64 tokens a step, 64 blocks of 4 tokens, contexts up to 256.
FakeExecutorOptions small_executor();

class Simulation {
 public:
  explicit Simulation(const FakeExecutorOptions& executor = small_executor(), EngineOptions options = {});

  /// Submits to the common sink; the request must be accepted.
  RequestId submit(const GenerateRequest& request);
  /// Turns until nothing is left to do, checking all invariants after each. Fails the test after
  /// `max_turns`.
  void run(int max_turns = 100'000);
  bool turn();

  const GenerateRequest& request(RequestId id) const { return requests_.at(id); }
  const SequenceRecord& sequence(RequestId id, std::int32_t index = 0) const { return sink->sequence(id, index); }

  /// The sequence has ended and its tokens are the model's; those of one that was cut off before are
  /// the beginning of the model's.
  void expect_right_answer(RequestId id, std::int32_t index = 0) const;

  const FakeModel model;
  VirtualClock clock;
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>(clock);
  engine::EngineLoop engine;

 private:
  std::map<RequestId, GenerateRequest> requests_;
};

/// `num_tokens` ids that depend on `seed`, below `vocab_size`.
std::vector<std::int32_t> make_prompt(std::int32_t num_tokens, std::uint64_t seed, std::int32_t vocab_size = 1000);

/// A seeded request that no end token stops.
GenerateRequest make_request(std::int32_t num_prompt_tokens, std::int32_t max_tokens, std::uint64_t seed);

}  // namespace thalweg::simulator
