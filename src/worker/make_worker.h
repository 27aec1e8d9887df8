// Makes a worker out of a loaded model.
#pragma once

#include <memory>

#include "device/stream.h"
#include "models/model.h"
#include "speculative/proposer.h"
#include "step/step_executor.h"
#include "thalweg/error.h"
#include "worker/worker_options.h"

namespace thalweg::worker {

/// Plans memory, logs the plan, takes it and starts the worker's thread. `stream.threads` must outlive the worker and
/// is the worker's alone from now on. With num_draft_tokens > 0 and no `proposer`, drafts come from prompt lookup.
Result<std::unique_ptr<step::StepExecutor>> make_cpu_worker(std::unique_ptr<models::Model> model, device::Stream stream,
                                                            const WorkerOptions& options,
                                                            std::unique_ptr<speculative::Proposer> proposer = nullptr);

}  // namespace thalweg::worker
