#include "worker/make_worker.h"

#include "base/log.h"
#include "speculative/ngram_proposer.h"
#include "worker/cpu_worker.h"
#include "worker/memory_plan.h"

namespace thalweg::worker {

Result<std::unique_ptr<step::StepExecutor>> make_cpu_worker(std::unique_ptr<models::Model> model, device::Stream stream,
                                                            const WorkerOptions& options,
                                                            std::unique_ptr<speculative::Proposer> proposer,
                                                            std::unique_ptr<device::ThreadPool> threads) {
  const models::ModelInfo& info = model->info();
  const Result<MemoryPlan> plan = plan_memory(info, options, available_memory_bytes());
  if (!plan) return std::unexpected(plan.error());
  log(LogLevel::kInfo, "{}", describe(*plan, info.cache));
  if (options.num_draft_tokens > 0 && !proposer) {
    proposer = std::make_unique<speculative::NgramProposer>(plan->max_num_seqs);
  }
  const step::ExecutorLimits limits{.vocab_size = info.vocab_size,
                                    .max_model_len = plan->max_model_len,
                                    .max_slots = plan->max_num_seqs,
                                    .max_num_batched_tokens = plan->max_num_batched_tokens,
                                    .max_draft_tokens = options.num_draft_tokens,
                                    .num_blocks = plan->num_blocks,
                                    .cache = info.cache};
  auto runner = std::make_unique<StepRunner>(std::move(model), stream, options, *plan, std::move(proposer));
  return std::make_unique<CpuWorker>(std::move(runner), limits, std::move(threads));
}

}  // namespace thalweg::worker
