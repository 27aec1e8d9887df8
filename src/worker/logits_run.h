// Logits of whole texts through a model, without an engine: what `thalweg logits` shows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "device/buffer.h"
#include "device/stream.h"
#include "models/model.h"
#include "thalweg/error.h"

namespace thalweg::worker {

struct LogitsOptions {
  std::int32_t chunk = 0;         // most tokens in one forward; 0: as many as memory suggests
  std::int32_t decode_from = -1;  // tokens from this position on are fed one at a time; -1: none
};

/// Receives logits [num_tokens, vocab_size] of the tokens from `first_token` on, in order; valid during
/// the call. An error ends the run.
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

 private:
  LogitsRun(models::Model& model, device::Stream stream, std::int32_t max_tokens, std::int32_t chunk,
            std::int32_t decode_from);

  models::Model* model_;
  device::Stream stream_;
  std::int32_t max_tokens_;
  std::int32_t chunk_;
  std::int32_t decode_from_;
  std::int32_t num_blocks_;
  device::Buffer blocks_;
  device::Buffer state_;
  device::Buffer logits_;
};

}  // namespace thalweg::worker
