#include "worker/cpu_worker.h"

#include <pthread.h>

#include "base/check.h"

namespace thalweg::worker {

CpuWorker::CpuWorker(std::unique_ptr<StepRunner> runner, const step::ExecutorLimits& limits,
                     std::unique_ptr<device::ThreadPool> threads)
    : limits_(limits), threads_(std::move(threads)), runner_(std::move(runner)), thread_([this] { run_steps(); }) {}

CpuWorker::~CpuWorker() {
  stopping_ = true;
  plans_.close();
  thread_.join();
}

void CpuWorker::submit(step::StepPlan plan) {
  CHECK_LT(num_in_flight_, kMaxInFlight);
  CHECK(!plan.rows.empty() || !plan.released_slots.empty());
  CHECK(plans_.try_push(plan));
  ++num_in_flight_;
}

step::StepResult CpuWorker::collect() {
  CHECK_GT(num_in_flight_, 0);
  std::optional<step::StepResult> result = results_.pop();
  CHECK(result.has_value());
  --num_in_flight_;
  return std::move(*result);
}

void CpuWorker::run_steps() {
  pthread_setname_np(pthread_self(), "worker");
  while (std::optional<step::StepPlan> plan = plans_.pop()) {
    if (stopping_) return;
    step::StepResult result = runner_->run(*plan);
    CHECK(results_.try_push(result));
  }
}

}  // namespace thalweg::worker
