// The worker of the CPU: a thread that owns the model, its memory and the slots.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "base/queue.h"
#include "device/thread_pool.h"
#include "step/step_executor.h"
#include "worker/step_runner.h"

namespace thalweg::worker {

/// Called from the engine's thread. Its own thread runs the steps and takes part in the kernels of the
/// stream's pool, which nobody else may use meanwhile.
class CpuWorker final : public step::StepExecutor {
 public:
  /// `threads` is the stream's pool if it is to go with the worker, otherwise null.
  CpuWorker(std::unique_ptr<StepRunner> runner, const step::ExecutorLimits& limits,
            std::unique_ptr<device::ThreadPool> threads = nullptr);
  /// Waits for the running step; the results of plans in flight are lost.
  ~CpuWorker() override;

  const step::ExecutorLimits& limits() const override { return limits_; }
  void submit(step::StepPlan plan) override;
  step::StepResult collect() override;

 private:
  void run_steps();

  const step::ExecutorLimits limits_;
  int num_in_flight_ = 0;  // the engine's thread alone
  BoundedQueue<step::StepPlan> plans_{kMaxInFlight};
  BoundedQueue<step::StepResult> results_{kMaxInFlight};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<device::ThreadPool> threads_;  // outlives the runner
  std::unique_ptr<StepRunner> runner_;
  std::thread thread_;
};

}  // namespace thalweg::worker
