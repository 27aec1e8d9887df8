// Makes a worker out of a loaded model.
#pragma once

#include <memory>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "models/model.h"
#include "speculative/proposer.h"
#include "step/step_executor.h"
#include "thalweg/error.h"
#include "worker/worker_options.h"

namespace thalweg::worker {

/// Plans memory, logs the plan, takes it and starts the worker's thread. `stream.threads` is the worker's alone from
/// now on; it outlives the worker, or is given away in `threads`. With num_draft_tokens > 0 and no `proposer`, drafts
/// come from prompt lookup.
Result<std::unique_ptr<step::StepExecutor>> make_cpu_worker(std::unique_ptr<models::Model> model, device::Stream stream,
                                                            const WorkerOptions& options,
                                                            std::unique_ptr<speculative::Proposer> proposer = nullptr,
                                                            std::unique_ptr<device::ThreadPool> threads = nullptr);

}  // namespace thalweg::worker
