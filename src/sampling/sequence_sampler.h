// Draws the tokens of one sequence.
//
// The draw at output position p uses the numbers of (seed, p) and nothing else that changes, so the same logits give
// the same token alone, in any batch, after a preemption, and when they were computed to verify a draft. Similar logits
// mostly give the same token too, which is how drafts of a draft model come to hold (race.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampling/draw.h"
#include "sampling/philox.h"
#include "sampling/row_loops.h"
#include "sampling/row_scratch.h"
#include "thalweg/event.h"
#include "thalweg/request.h"

namespace thalweg::sampling {

/// The order of operations is that of SamplingParams. Details it leaves open:
/// - Bad words match the end of prompt and output together.
/// - The repetition penalty counts prompt and output, frequency and presence the output alone.
/// - Below min_tokens the stop ids are masked, and the model's end ids unless ignore_eos is set.
/// - Ids outside the vocabulary are passed over.
/// A sequence is used by one thread at a time; different sequences are independent.
class SequenceSampler {
 public:
  /// `tokens`: prompt and, after a preemption, the output so far.
  SequenceSampler(std::shared_ptr<const SamplingParams> params, std::uint64_t seed, std::int32_t vocab_size,
                  std::span<const std::int32_t> eos_token_ids, std::span<const std::int32_t> tokens,
                  std::int32_t num_prompt_tokens);

  /// Makes a token of the distribution that `draw` draws from, laid out as a row: scratch.weights [vocab_size], which
  /// sum to `total`, and their sums per block in scratch.sums. All of scratch may be written.
  using Choose = std::function<std::int32_t(RowScratch& scratch, double total)>;

  bool wants_logprobs() const { return params_->num_logprobs >= 0; }
  std::int32_t num_logprobs() const { return params_->num_logprobs; }
  bool is_greedy() const { return params_->temperature <= 0.0F; }

  /// Of the numbers for the token that follows `num_tokens` tokens of prompt and output.
  DrawKey key(std::size_t num_tokens, DrawPurpose purpose, std::uint32_t offset = 0) const {
    return {seed_, static_cast<std::uint64_t>(static_cast<std::int64_t>(num_tokens) - num_prompt_tokens_), purpose,
            offset};
  }

  /// Draws the token that follows `tokens` (the ones given before and appended since) from its raw logits, which are
  /// restored or left edited. `logprobs` is filled if wanted. Empty when the row cannot be drawn from: it holds NaN or
  /// plus infinity, or no allowed token is left.
  std::optional<std::int32_t> draw(const RowLoops& loops, std::span<float> row, std::span<const std::int32_t> tokens,
                                   RowScratch& scratch, TokenLogprobs* logprobs) const;

  /// The same, but `choose` draws. Precondition: not greedy.
  std::optional<std::int32_t> draw_with(const RowLoops& loops, std::span<float> row,
                                        std::span<const std::int32_t> tokens, RowScratch& scratch,
                                        TokenLogprobs* logprobs, const Choose& choose) const;

  /// Takes note that `token` has become part of the output.
  void append(std::int32_t token);

 private:
  struct SeenToken {
    std::int32_t id;
    std::int32_t num_outputs;
  };

  bool in_vocabulary(std::int32_t id) const { return id >= 0 && id < vocab_size_; }
  void see(std::int32_t token, bool is_output);
  bool edits(std::int64_t num_outputs) const;
  float penalised(float logit, const SeenToken& seen) const;
  void edit(std::span<float> row, std::span<const std::int32_t> tokens, std::int64_t num_outputs,
            RowScratch& scratch) const;
  std::optional<Kept> filter(const RowLoops& loops, std::span<const float> row, RowScratch& scratch) const;
  std::optional<std::int32_t> best(std::span<const float> row, RowScratch& scratch) const;
  template <typename Pick>
  std::optional<std::int32_t> edit_and_pick(const RowLoops& loops, std::span<float> row,
                                            std::span<const std::int32_t> tokens, RowScratch& scratch,
                                            TokenLogprobs* logprobs, Pick&& pick) const;
  bool list_allowed(std::span<const float> row, RowScratch& scratch) const;

  std::shared_ptr<const SamplingParams> params_;
  std::uint64_t seed_;
  std::int32_t vocab_size_;
  std::int32_t num_prompt_tokens_;
  bool has_penalties_;
  std::vector<std::int32_t> end_ids_;  // masked below min_tokens
  std::vector<std::int32_t> allowed_;  // rising; empty: all
  bool all_allowed_;
  std::vector<SeenToken> seen_;  // in order of appearance; kept only for penalties
  std::unordered_map<std::int32_t, std::int32_t> seen_index_;
};

}  // namespace thalweg::sampling
