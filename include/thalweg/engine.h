// The library: open a model, submit requests, receive events, close.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "thalweg/error.h"
#include "thalweg/event.h"
#include "thalweg/request.h"
#include "thalweg/speculation.h"

namespace thalweg {

inline constexpr std::int32_t kMaxDraftTokens = 64;  // of one sequence in one step

/// Limits and choices fixed at start. Zero means "choose for this machine and model".
struct EngineOptions {
  std::string model_path;  // a .gguf file (any shard of a split one) or a Hugging Face folder
  std::int32_t num_threads = 0;
  std::int32_t max_model_len = 0;  // tokens of prompt and output together
  std::int64_t kv_cache_bytes = 0;
  std::int32_t max_num_seqs = 0;            // sequences computed in one step
  std::int32_t max_num_batched_tokens = 0;  // tokens computed in one step
  std::int32_t max_queued_requests = 0;     // waiting requests beyond this are refused
  bool enable_prefix_cache = true;
  /// Models that keep state per sequence may rebuild it from the last tokens of a prefix hit and run their upper layers
  /// for the last tokens of a prompt only, which is close but not exact and depends on where a hit ends. 0: everything
  /// is computed, so that tokens depend on the request alone; > 0: that many last tokens of a prompt; -1: as the model
  /// was made for. Other models are always exact.
  std::int32_t replay_tokens = -1;
  std::int32_t num_draft_tokens = 0;  // speculation: most drafts per sequence and step, 0 is off
  SpeculationOptions speculation;     // how
  double target_step_s = 0.0;         // while streams run, prefill is cut so that a step takes about this long
};

/// What a caller may need to know about the loaded model.
struct ModelDescription {
  std::string name;
  std::string architecture;
  std::int32_t vocab_size = 0;        // rows of the head; valid ids are below it
  std::int32_t max_model_len = 0;     // after options and KV memory have been applied
  std::int32_t max_draft_tokens = 0;  // of one sequence in one step
  std::int64_t num_parameters = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::vector<std::int32_t> eos_token_ids;
};

/// Upper bounds of the buckets that count steps by their tokens; a last one has no bound.
inline constexpr std::array<std::int32_t, 13> kStepTokenBounds = {1,   8,    16,   32,   64,   128,  256,
                                                                  512, 1024, 2048, 4096, 8192, 16384};

/// A consistent snapshot, taken by the engine thread after each step. Totals only grow. Always
/// num_sequences_admitted == finished + cancelled + failed + num_running + num_waiting.
struct EngineStats {
  std::int32_t num_running = 0;  // sequences
  std::int32_t num_waiting = 0;
  std::int32_t num_held = 0;  // of those that wait: for another sequence of their request to compute the prompt
  std::int64_t num_blocks_total = 0;
  std::int64_t num_blocks_used = 0;  // held by sequences; cached free blocks do not count
  std::uint64_t num_steps = 0;
  std::uint64_t num_requests_admitted = 0;
  std::uint64_t num_requests_rejected = 0;
  std::uint64_t num_sequences_admitted = 0;
  std::uint64_t num_sequences_finished = 0;   // kStop, kLength
  std::uint64_t num_sequences_cancelled = 0;  // kCancelled
  std::uint64_t num_sequences_failed = 0;     // kError, deadlines included
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_prompt_tokens = 0;
  std::uint64_t num_output_tokens = 0;
  std::uint64_t num_prefix_query_tokens = 0;
  std::uint64_t num_prefix_hit_tokens = 0;
  std::uint64_t num_drafts = 0;  // rows that verified drafts: one sequence in one step
  std::uint64_t num_draft_tokens = 0;
  std::uint64_t num_accepted_tokens = 0;
  std::array<std::uint64_t, kMaxDraftTokens> num_accepted_at{};  // of them, by place in their row's drafts
  std::uint64_t num_computed_tokens = 0;                         // in all steps, drafts included
  std::array<std::uint64_t, kStepTokenBounds.size() + 1> num_steps_by_tokens{};  // each step in one bucket
  std::int32_t last_step_tokens = 0;
  bool device_lost = false;      // no further step will run; every submit is refused
  double last_progress_s = 0.0;  // engine clock at the last finished step or idle turn
};

/// All functions may be called from any thread.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelDescription& model() const = 0;

  /// Refuses at once what can never run (both numbers in the message) and what does not fit the
  /// queue. After success exactly `num_sequences` FinishEvents reach `sink`.
  virtual Result<RequestId> submit(GenerateRequest request, std::shared_ptr<EventSink> sink) = 0;

  /// Ends the request, or one sequence of it, within one step. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  virtual void cancel_sequence(RequestId id, std::int32_t sequence_index) = 0;

  virtual EngineStats stats() const = 0;

  /// Drops all cached prefixes; refused with kFailedPrecondition while sequences run.
  virtual Status reset_prefix_cache() = 0;

  /// Stops taking requests, lets running ones finish for `drain_s` seconds, ends the rest as
  /// cancelled and joins the threads. Idempotent; the destructor calls close(0).
  virtual void close(double drain_s) = 0;
};

/// Called on the loading thread with the share of weight bytes that is ready, in [0, 1].
using LoadProgress = std::function<void(double fraction)>;

Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options, const LoadProgress& progress = {});

/// One finished sequence of an offline run.
struct GeneratedSequence {
  std::vector<TokenLogprobs> prompt_logprobs;  // if asked for; of the request's first sequence
  std::vector<std::int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  FinishEvent finish;
};

/// Runs all requests through the engine and returns their sequences, `[request][sequence]`, in the
/// order given. A request that is refused or fails carries its error in `finish`.
std::vector<std::vector<GeneratedSequence>> generate(Engine& engine, std::vector<GenerateRequest> requests,
                                                     const std::function<void(std::size_t num_done)>& progress = {});

}  // namespace thalweg
