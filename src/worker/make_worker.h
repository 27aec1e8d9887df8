// Makes a worker out of a loaded model.
#pragma once

#include <memory>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "models/model.h"
#include "step/step_executor.h"
#include "thalweg/error.h"
#include "worker/worker_options.h"

namespace thalweg::worker {

/// Plans memory, logs the plan, takes it and starts the worker's thread. `stream.threads` is the worker's alone from
/// now on; it outlives the worker, or is given away in `threads`. Drafts are as many as the draft model makes at a
/// time, if that is less than num_draft_tokens.
Result<std::unique_ptr<step::StepExecutor>> make_cpu_worker(std::unique_ptr<models::Model> model, device::Stream stream,
                                                            const WorkerOptions& options,
                                                            std::unique_ptr<device::ThreadPool> threads = nullptr);

}  // namespace thalweg::worker
