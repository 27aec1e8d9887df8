// The engine: one thread that turns mail into steps and results into events.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "base/clock.h"
#include "base/queue.h"
#include "base/snapshot.h"
#include "kv_cache/kv_blocks.h"
#include "scheduler/admission.h"
#include "scheduler/event_outbox.h"
#include "scheduler/scheduler.h"
#include "step/step_executor.h"
#include "thalweg/engine.h"

namespace thalweg::engine {

/// Limits with every zero of `options` replaced and cut to what the executor can do.
struct EngineLimits {
  std::int32_t max_model_len = 0;
  std::int32_t max_pool_tokens = 0;  // that all blocks together hold
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_draft_tokens = 0;
  std::int32_t max_queued_requests = 0;
  double target_step_s = 0.0;
};

EngineLimits resolve_limits(const EngineOptions& options, const step::ExecutorLimits& executor);

/// One turn: take mail, plan step t+1 while step t runs, collect t, apply it, publish its events.
/// With nothing to do the thread sleeps on the mailbox.
///
/// Submitting threads check and hash their own prompts, so that the engine thread's time per step
/// depends on the number of running sequences only.
///
/// A simulator does not call `start` and drives `turn` itself.
class EngineLoop final : public Engine {
 public:
  /// `clock` must outlive the engine. `secret_seed` fixes the prefix cache's hashes; absent: random.
  EngineLoop(std::unique_ptr<step::StepExecutor> executor, ModelDescription model, const EngineOptions& options,
             const Clock& clock, std::optional<std::uint64_t> secret_seed = {});
  ~EngineLoop() override;

  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Any thread.
  const ModelDescription& model() const override { return model_; }
  Result<RequestId> submit(GenerateRequest request, std::shared_ptr<EventSink> sink) override;
  void cancel(RequestId id) override;
  void cancel_sequence(RequestId id, std::int32_t sequence_index) override;
  EngineStats stats() const override;
  Status reset_prefix_cache() override;
  void close(double drain_s) override;

  const EngineLimits& limits() const { return limits_; }

  /// Starts the engine thread. Once, before any other thread knows the engine.
  void start();

  /// Engine thread, or the one thread of a simulation: false when there is nothing left to do.
  bool turn();

  /// Engine thread between turns; for tests.
  void check_invariants() const { scheduler_.check_invariants(); }

 private:
  struct Cancel {
    RequestId id{};
    std::optional<std::int32_t> sequence_index;
  };
  struct ResetPrefixCache {
    std::unique_ptr<std::promise<Status>> answer;
  };
  struct Close {
    double until_s = 0.0;
  };
  using Message = std::variant<std::shared_ptr<scheduler::Request>, Cancel, ResetPrefixCache, Close>;

  bool post(Message message);

  void run();
  void take(Message message);
  void take(std::shared_ptr<scheduler::Request> request) { scheduler_.add(std::move(request)); }
  void take(const Cancel& cancel);
  void take(ResetPrefixCache reset);
  void take(const Close& close);
  void end_what_is_over();
  bool submit_next_step();
  void collect_oldest_step();
  void publish();
  void finish_run();

  const Clock& clock_;
  const std::unique_ptr<step::StepExecutor> executor_;
  const EngineLimits limits_;
  ModelDescription model_;
  const kv_cache::BlockHasher hasher_;
  scheduler::AdmissionGate gate_;  // outlives the requests, which hold its places

  // Engine thread.
  kv_cache::KvBlocks kv_;
  scheduler::EventOutbox outbox_;
  scheduler::Scheduler scheduler_;
  int num_in_flight_ = 0;
  double last_progress_s_ = 0.0;
  std::optional<Error> device_error_;
  std::optional<double> close_at_s_;

  // Shared.
  BoundedQueue<Message> mailbox_;
  Snapshot<EngineStats> stats_;
  std::atomic<std::uint64_t> last_request_id_ = 0;
  std::atomic<std::uint64_t> num_rejected_ = 0;
  std::atomic<bool> stopped_ = false;  // nothing takes mail any more
  std::atomic<bool> started_ = false;
  std::atomic<bool> joined_ = false;
  std::thread thread_;
};

/// The engine over `executor`, running on its own thread.
std::unique_ptr<Engine> make_engine(std::unique_ptr<step::StepExecutor> executor, ModelDescription model,
                                    const EngineOptions& options, const Clock& clock);

}  // namespace thalweg::engine
