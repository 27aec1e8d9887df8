#include "worker/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "thalweg/engine.h"

namespace thalweg::worker {
namespace {

constexpr std::int32_t kDefaultMaxNumSeqs = 64;
constexpr std::int32_t kDefaultMaxNumBatchedTokens = 512;
constexpr std::int64_t kPromptLogprobBytes = std::int64_t{32} << 20;  // of logits in one forward
constexpr std::int32_t kMinPromptLogprobTokens = 16;
constexpr std::int32_t kMaxPromptLogprobTokens = 128;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Status check_options(const models::ModelInfo& model, const WorkerOptions& options) {
  const auto not_negative = [](std::int64_t value, const char* name) -> Status {
    if (value >= 0) return {};
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must not be negative", name, value), name);
  };
  for (const Status& status :
       {not_negative(options.max_model_len, "max_model_len"), not_negative(options.max_num_seqs, "max_num_seqs"),
        not_negative(options.max_num_batched_tokens, "max_num_batched_tokens"),
        not_negative(options.kv_cache_bytes, "kv_cache_bytes"),
        not_negative(options.num_draft_tokens, "num_draft_tokens")}) {
    if (!status) return status;
  }
  if (options.num_draft_tokens > kMaxDraftTokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("num_draft_tokens is {}; at most {} drafts per step make sense", options.num_draft_tokens,
                            kMaxDraftTokens),
                "num_draft_tokens");
  }
  if (options.max_model_len > model.max_position) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("max_model_len is {}, but the model was made for {} tokens; ask for at most that",
                            options.max_model_len, model.max_position),
                "max_model_len");
  }
  if (options.max_num_seqs > 0 && options.max_num_batched_tokens > 0 &&
      options.max_num_batched_tokens < options.max_num_seqs) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("max_num_batched_tokens is {}, below max_num_seqs {}: a step could not give each sequence "
                            "a token; raise the one or lower the other",
                            options.max_num_batched_tokens, options.max_num_seqs),
                "max_num_batched_tokens");
  }
  return {};
}

void choose_batch(const WorkerOptions& options, MemoryPlan& plan) {
  plan.max_num_seqs = options.max_num_seqs;
  plan.max_num_batched_tokens = options.max_num_batched_tokens;
  if (plan.max_num_seqs == 0) {
    plan.max_num_seqs = kDefaultMaxNumSeqs;
    if (plan.max_num_batched_tokens > 0) plan.max_num_seqs = std::min(plan.max_num_seqs, plan.max_num_batched_tokens);
  }
  if (plan.max_num_batched_tokens == 0) {
    plan.max_num_batched_tokens = std::max(kDefaultMaxNumBatchedTokens, plan.max_num_seqs);
  }
}

/// What must be there beside the weights, which are loaded by now, and the cache that was asked for.
Status check_available(const WorkerOptions& options, std::int64_t available_bytes, const MemoryPlan& plan) {
  const std::int64_t logit_bytes = plan.logit_bytes + plan.draft_logit_bytes;
  const std::int64_t fixed_bytes = logit_bytes + plan.state_bytes;
  const std::int64_t missing_bytes = fixed_bytes + options.kv_cache_bytes - available_bytes;
  if (missing_bytes <= 0) return {};
  const bool cache_is_at_fault = options.kv_cache_bytes > 0 && fixed_bytes <= available_bytes;
  return fail(
      ErrorCode::kResourceExhausted,
      fmt::format("{:.1f} MiB of memory are missing: logits take {:.1f} MiB, the state of {} sequences {:.1f} MiB "
                  "and kv_cache_bytes {:.1f} MiB, but {:.1f} MiB are available; lower {}",
                  mib(missing_bytes), mib(logit_bytes), plan.max_num_seqs, mib(plan.state_bytes),
                  mib(options.kv_cache_bytes), mib(available_bytes),
                  cache_is_at_fault ? "kv_cache_bytes or max_num_seqs" : "max_num_seqs"),
      cache_is_at_fault ? "kv_cache_bytes" : "max_num_seqs");
}

/// The cache's blocks; shortens a model length that nobody asked for.
Status choose_blocks(const models::ModelInfo& model, const WorkerOptions& options, std::int64_t available_bytes,
                     MemoryPlan& plan) {
  const kv_cache::CacheSpec& cache = model.cache;
  plan.max_model_len = options.max_model_len > 0 ? options.max_model_len : model.max_position;
  const std::int64_t blocks_per_seq = ceil_div(plan.max_model_len, cache.block_size);
  const std::int64_t wanted = blocks_per_seq * plan.max_num_seqs;
  const std::int64_t block_bytes = std::max<std::int64_t>(1, cache.bytes_per_block);
  const std::int64_t budget = options.kv_cache_bytes > 0
                                  ? options.kv_cache_bytes
                                  : std::min(available_bytes / 2, available_bytes - plan.logit_bytes -
                                                                      plan.draft_logit_bytes - plan.state_bytes);
  plan.num_blocks = std::min<std::int64_t>(budget / block_bytes, std::numeric_limits<std::int32_t>::max());
  if (options.kv_cache_bytes == 0) plan.num_blocks = std::min(plan.num_blocks, wanted);
  plan.cache_bytes = plan.num_blocks * cache.bytes_per_block;
  if (plan.num_blocks >= blocks_per_seq) return {};

  const std::int64_t possible = plan.num_blocks * cache.block_size;
  if (options.max_model_len > 0 || possible == 0) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("one sequence of {} tokens needs {:.1f} MiB of KV cache, but {:.1f} MiB are given: {}",
                            plan.max_model_len, mib(blocks_per_seq * cache.bytes_per_block), mib(budget),
                            options.kv_cache_bytes > 0 ? "raise kv_cache_bytes or lower max_model_len"
                                                       : "lower max_model_len or free memory"),
                options.kv_cache_bytes > 0 ? "kv_cache_bytes" : "max_model_len");
  }
  plan.max_model_len = static_cast<std::int32_t>(possible);
  return {};
}

void choose_logits(const models::ModelInfo& model, const WorkerOptions& options, MemoryPlan& plan) {
  const std::int64_t row_bytes = std::int64_t{model.vocab_size} * static_cast<std::int64_t>(sizeof(float));
  plan.prompt_logprob_tokens = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(kPromptLogprobBytes / row_bytes, kMinPromptLogprobTokens, kMaxPromptLogprobTokens));
  const std::int64_t sampled = std::min<std::int64_t>(std::int64_t{plan.max_num_seqs} * (1 + options.num_draft_tokens),
                                                      plan.max_num_batched_tokens);
  plan.max_logit_rows = static_cast<std::int32_t>(std::max<std::int64_t>(sampled, plan.prompt_logprob_tokens));
  plan.logit_bytes = plan.max_logit_rows * row_bytes;
  if (options.num_draft_tokens > 0 && options.speculation.source == DraftSource::kModel) {
    plan.draft_logit_bytes = speculative::draft_logit_bytes(draft_model_options(model, options, plan.max_num_seqs));
  }
}

}  // namespace

speculative::DraftModelOptions draft_model_options(const models::ModelInfo& model, const WorkerOptions& options,
                                                   std::int32_t max_num_seqs) {
  return {.max_slots = max_num_seqs,
          .vocab_size = model.vocab_size,
          .max_drafts = options.num_draft_tokens,
          .speculation = options.speculation};
}

Result<MemoryPlan> plan_memory(const models::ModelInfo& model, const WorkerOptions& options,
                               std::int64_t available_bytes) {
  if (Status status = check_options(model, options); !status) return std::unexpected(status.error());
  MemoryPlan plan;
  plan.weight_bytes = model.weight_bytes;
  choose_batch(options, plan);
  choose_logits(model, options, plan);
  plan.state_bytes = model.cache.state_bytes_per_slot * plan.max_num_seqs;
  if (Status status = check_available(options, available_bytes, plan); !status) {
    return std::unexpected(status.error());
  }
  if (Status status = choose_blocks(model, options, available_bytes, plan); !status) {
    return std::unexpected(status.error());
  }
  return plan;
}

std::string describe(const MemoryPlan& plan, const kv_cache::CacheSpec& cache) {
  return fmt::format(
      "memory plan: weights {:.1f} MiB, KV cache up to {:.1f} MiB ({} blocks of {} tokens), sequence state up to "
      "{:.1f} MiB, logits up to {:.1f} MiB; {} sequences of {} tokens, {} tokens per step",
      mib(plan.weight_bytes), mib(plan.cache_bytes), plan.num_blocks, cache.block_size, mib(plan.state_bytes),
      mib(plan.logit_bytes + plan.draft_logit_bytes), plan.max_num_seqs, plan.max_model_len,
      plan.max_num_batched_tokens);
}

}  // namespace thalweg::worker
