#include "worker/make_worker.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "sampling/row_loops.h"
#include "speculative/draft_model_proposer.h"
#include "speculative/ngram_proposer.h"
#include "worker/cpu_worker.h"
#include "worker/memory_plan.h"

namespace thalweg::worker {
namespace {

Status check_speculation(models::Model& model, const WorkerOptions& options) {
  const SpeculationOptions& speculation = options.speculation;
  if (!(speculation.min_survival >= 0.0F && speculation.min_survival <= 1.0F)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("min_survival is {}; a probability lies in [0, 1]", speculation.min_survival),
                "min_survival");
  }
  const double forced = speculation.forced_acceptance.value_or(0.0);
  if (!(forced >= 0.0 && forced <= options.num_draft_tokens)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("forced_acceptance is {}; of {} drafts per step that many cannot hold", forced,
                            options.num_draft_tokens),
                "forced_acceptance");
  }
  if (options.num_draft_tokens > 0 && speculation.source == DraftSource::kModel && model.draft_model() == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("drafts are to come from a draft model, but the {} model was loaded without one; choose "
                            "n-grams or no speculation",
                            model.info().architecture),
                "source");
  }
  return {};
}

/// Most drafts per row and step that are to be had.
std::int32_t usable_draft_tokens(models::Model& model, const WorkerOptions& options) {
  if (options.num_draft_tokens == 0 || options.speculation.source != DraftSource::kModel) {
    return options.num_draft_tokens;
  }
  const std::int32_t block_size = model.draft_model()->block_size();
  if (options.num_draft_tokens > block_size) {
    log(LogLevel::kWarning, "the draft model makes {} drafts at a time, so {} per step are not to be had", block_size,
        options.num_draft_tokens);
  }
  return std::min(options.num_draft_tokens, block_size);
}

std::unique_ptr<speculative::Proposer> make_proposer(models::Model& model, const device::Stream& stream,
                                                     const WorkerOptions& options, const MemoryPlan& plan) {
  if (options.num_draft_tokens == 0) return nullptr;
  if (options.speculation.forced_acceptance) {
    log(LogLevel::kWarning,
        "FORCED ACCEPTANCE: {} drafts hold in each step whatever they are; the output is not the model's",
        *options.speculation.forced_acceptance);
  }
  if (options.speculation.source == DraftSource::kNgram) {
    return std::make_unique<speculative::NgramProposer>(plan.max_num_seqs, options.num_draft_tokens);
  }
  return std::make_unique<speculative::DraftModelProposer>(
      *model.draft_model(), sampling::row_loops(stream.cpu_level),
      draft_model_options(model.info(), options, plan.max_num_seqs));
}

}  // namespace

Result<std::unique_ptr<step::StepExecutor>> make_cpu_worker(std::unique_ptr<models::Model> model, device::Stream stream,
                                                            const WorkerOptions& wanted,
                                                            std::unique_ptr<device::ThreadPool> threads) {
  const models::ModelInfo& info = model->info();
  if (Status status = check_speculation(*model, wanted); !status) return std::unexpected(status.error());
  WorkerOptions options = wanted;
  options.num_draft_tokens = usable_draft_tokens(*model, wanted);
  const Result<MemoryPlan> plan = plan_memory(info, options, available_memory_bytes());
  if (!plan) return std::unexpected(plan.error());
  log(LogLevel::kInfo, "{}", describe(*plan, info.cache));
  const step::ExecutorLimits limits{.vocab_size = info.vocab_size,
                                    .max_model_len = plan->max_model_len,
                                    .max_slots = plan->max_num_seqs,
                                    .max_num_batched_tokens = plan->max_num_batched_tokens,
                                    .max_draft_tokens = options.num_draft_tokens,
                                    .num_blocks = plan->num_blocks,
                                    .cache = info.cache};
  auto proposer = make_proposer(*model, stream, options, *plan);
  auto runner = std::make_unique<StepRunner>(std::move(model), stream, options, *plan, std::move(proposer));
  return std::make_unique<CpuWorker>(std::move(runner), limits, std::move(threads));
}

}  // namespace thalweg::worker
