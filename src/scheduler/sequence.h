// A request and its sequences, as the control tower keeps them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv_cache/block_hash.h"
#include "kv_cache/block_pool.h"
#include "scheduler/admission.h"
#include "step/step_plan.h"
#include "thalweg/event.h"
#include "thalweg/request.h"

namespace thalweg::scheduler {

struct Request;

enum class SequenceState {
  kHeld,      // waits until the first sequence of its request has computed their prompt
  kWaiting,   // in the queue, new or preempted
  kRunning,   // holds a slot and blocks
  kFinished,  // has been answered
};

/// One generated stream. There is no prefill and no decode here: a sequence has tokens that are
/// computed and tokens that should be, and a step gives it some of the difference.
struct Sequence {
  Request* request = nullptr;  // owner
  std::int32_t index = 0;      // in its request
  std::uint64_t seed = 0;
  SequenceState state = SequenceState::kHeld;

  std::vector<std::int32_t> output_ids;  // sampled and collected

  // Rows in flight: how many, and how many tokens they will have sampled at least and at most.
  std::int32_t num_rows_in_flight = 0;
  std::int32_t min_tokens_in_flight = 0;
  std::int32_t max_tokens_in_flight = 0;

  // While running.
  step::SlotId slot = -1;
  std::vector<kv_cache::BlockId> blocks;
  std::size_t num_sent_blocks = 0;        // of `blocks`, told to the executor
  std::size_t num_published_blocks = 0;   // of `blocks`, offered to the prefix index
  std::int32_t num_start_tokens = 0;      // given to the executor at the start
  std::int32_t num_computed_tokens = 0;   // for its state; computed or in flight; with drafts in flight, at least
  std::int32_t num_submitted_tokens = 0;  // of the start tokens, in plans that were handed over

  std::vector<kv_cache::BlockHash> output_hashes;  // of the full blocks after the prompt's full blocks
  std::uint64_t blocked_at_version = std::numeric_limits<std::uint64_t>::max();  // of KvBlocks: did not fit

  std::vector<TokenLogprobs> prompt_logprobs;  // collected so far
  bool started = false;                        // StartEvent is out
  std::int32_t num_preemptions = 0;
  std::int32_t num_draft_tokens = 0;
  std::int32_t num_accepted_tokens = 0;
  std::optional<double> scheduled_s;  // first time
  std::optional<double> prompt_done_s;

  std::int32_t num_prompt_tokens() const;
  /// Prompt and collected output.
  std::int32_t num_known_tokens() const;
  /// Where max_tokens ends it.
  std::int32_t max_num_tokens() const;
  /// Tokens that are to be computed, as far as is certain now. The last token a sequence may have is
  /// never computed.
  std::int32_t num_target_tokens() const;
  /// All start tokens are on their way: from here on rows continue what the executor sampled.
  bool continues() const { return num_computed_tokens >= num_start_tokens; }
  bool wants_prompt_logprobs() const;
};

/// Built on the submitting thread by `make_request`, then owned by the engine thread. In-flight rows
/// share ownership, so a finished request lives until its last row is collected.
struct Request : std::enable_shared_from_this<Request> {
  RequestId id{};
  std::shared_ptr<const std::vector<std::int32_t>> prompt_ids;
  std::shared_ptr<const SamplingParams> sampling;
  std::int32_t max_tokens = 0;
  std::int32_t num_prompt_logprobs = -1;
  std::int64_t priority = 0;
  std::optional<double> timeout_s;
  double submitted_s = 0.0;
  kv_cache::BlockHash root_hash;
  std::vector<kv_cache::BlockHash> prompt_hashes;  // of its full blocks; empty without prefix cache
  std::shared_ptr<EventSink> sink;
  QueuePlace queue_place;

  std::vector<Sequence> sequences;  // never resized
  std::int32_t num_unfinished = 0;
  bool prompt_submitted = false;       // by any sequence: the held ones may go
  bool prompt_counted = false;         // in the totals
  std::int32_t num_cached_tokens = 0;  // of the first sequence that started

  std::optional<double> deadline_s() const {
    return timeout_s ? std::optional(submitted_s + *timeout_s) : std::nullopt;
  }
};

/// What is known about every request of one engine when it is built.
struct RequestContext {
  const kv_cache::BlockHasher& hasher;
  std::int32_t block_size = 0;
  bool enable_prefix_cache = false;
};

/// Does everything that takes time proportional to the prompt, so that the engine thread need not.
/// Precondition: the gate accepted `request`.
std::shared_ptr<Request> make_request(RequestId id, GenerateRequest request, std::shared_ptr<EventSink> sink,
                                      QueuePlace place, double now, const RequestContext& context);

/// The seed of sequence `index`: the request's own for the first, a fixed mix for the others.
std::uint64_t sequence_seed(std::uint64_t request_seed, std::int32_t index);

}  // namespace thalweg::scheduler
