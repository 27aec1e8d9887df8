// Logits of whole texts through a model, without an engine: what `thalweg logits` shows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "models/model.h"
#include "thalweg/error.h"
#include "worker/step_inputs.h"

namespace thalweg::worker {

struct LogitsOptions {
  std::int32_t chunk = 0;         // most tokens in one forward; 0: as many as memory suggests
  std::int32_t decode_from = -1;  // tokens from this position on are fed one at a time; -1: none
  /// Of the prompt, which ends where decoding begins, computes in full what an engine would: the model's last
  /// ModelInfo::prefill_tail_tokens. Otherwise all.
  bool prompt_tail_only = false;
  /// > 0: that many tokens are computed as a prompt of their own; then the sequence starts anew as after a prefix hit,
  /// with their blocks but without their state. A multiple of what the model's hits are cut to.
  std::int32_t num_hit_tokens = 0;
};

/// Receives logits [num_tokens, vocab_size] of the tokens from `first_token` on, in order; valid during
/// the call. Those of tokens that were not computed in full are NaN. An error ends the run.
using LogitsSink = std::function<Status(std::int32_t first_token, std::int32_t num_tokens, const float* logits)>;

/// Runs one text after another on the calling thread.
class LogitsRun {
 public:
  /// Logits of one forward take at most this much; a larger chunk is cut.
  static constexpr std::int64_t kMaxLogitBytes = std::int64_t{256} << 20;

  /// `model` must not have been reserved for anybody else. `max_tokens`: the longest text.
  static Result<LogitsRun> create(models::Model& model, device::Stream stream, std::int32_t max_tokens,
                                  const LogitsOptions& options);

  /// `ids` are checked against the vocabulary and `max_tokens`.
  Status run(std::span<const std::int32_t> ids, const LogitsSink& sink);

  /// Tokens of all runs that were not computed in full.
  std::int64_t num_partial_tokens() const { return num_partial_tokens_; }

 private:
  /// A start of the sequence with empty state, and all that follows.
  struct Pass {
    std::int32_t num_prompt_tokens = 0;  // known at the start; the others are fed one at a time
    std::int32_t end = 0;
    std::int32_t num_cached_tokens = 0;  // whose blocks are there, and whose logits have been shown
  };

  LogitsRun(models::Model& model, device::Stream stream, std::int32_t max_tokens, const LogitsOptions& options);

  Status check(std::span<const std::int32_t> ids) const;
  Status run_pass(std::span<const std::int32_t> ids, const Pass& pass, const LogitsSink& sink);

  models::Model* model_;
  device::Stream stream_;
  std::int32_t max_tokens_;
  LogitsOptions options_;  // with the chunk that is used
  std::int64_t num_partial_tokens_ = 0;
  StepInputs inputs_;
  std::vector<step::BlockId> block_table_;
  device::Buffer blocks_;
  device::Buffer state_;
  device::Buffer logits_;
};

}  // namespace thalweg::worker
