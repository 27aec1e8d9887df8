// A model whose next token is a hash of everything before it: any wrong, missing or foreign token in
// a context shows in the output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "thalweg/event.h"
#include "thalweg/request.h"

namespace thalweg::simulator {

struct FakeModel {
  std::int32_t vocab_size = 1000;
  std::vector<std::int32_t> eos_token_ids = {0};
  double failure_share = 0.0;  // of all drawn tokens whose logits are not numbers

  static constexpr std::uint64_t kEmptyHistory = 0x243F6A8885A308D3U;

  /// The name of a history that `token_id` is appended to.
  static std::uint64_t extend(std::uint64_t history, std::int32_t token_id);

  std::int32_t next_token(std::uint64_t history, std::uint64_t seed, std::int32_t num_output_tokens,
                          const SamplingParams& sampling) const;

  /// Whether the draw after `history` fails.
  bool fails(std::uint64_t history, std::uint64_t seed) const;

 private:
  bool is_end(std::int32_t token_id, const SamplingParams& sampling) const;
};

/// What a sequence must answer however it is scheduled.
struct FakeOutput {
  std::vector<std::int32_t> token_ids;
  FinishReason reason = FinishReason::kLength;
  std::optional<std::int32_t> stop_token_id;
};

/// The definition: one token after the other, nothing cached. `sampling.seed` must be set.
FakeOutput expected_output(const FakeModel& model, const GenerateRequest& request, std::int32_t sequence_index);

}  // namespace thalweg::simulator
