#include "sampling/sequence_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sampling/draw.h"
#include "sampling/logprobs.h"
#include "sampling/philox.h"
#include "sampling/scan.h"
#include "sampling/select.h"

namespace thalweg::sampling {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

/// Sets a logit. What cannot be drawn from (NaN, plus infinity) stays, so that no wish hides a broken row; what is
/// masked stays masked; what is finite stays finite, however large the wish.
void change(std::span<float> row, std::int32_t id, float wanted, RowScratch& scratch) {
  float& logit = row[static_cast<std::size_t>(id)];
  if (!(logit <= kLargest) || logit == kMinusInfinity) return;
  scratch.originals.push_back({logit, id});
  logit = wanted == kMinusInfinity ? wanted : std::clamp(wanted, -kLargest, kLargest);
}

/// The first tokens of `word` end `tokens`, so its last one would complete it.
bool completes(std::span<const std::int32_t> word, std::span<const std::int32_t> tokens) {
  const std::size_t prefix = word.size() - 1;
  return prefix <= tokens.size() && std::equal(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(prefix),
                                               tokens.end() - static_cast<std::ptrdiff_t>(prefix));
}

}  // namespace

SequenceSampler::SequenceSampler(std::shared_ptr<const SamplingParams> params, std::uint64_t seed,
                                 std::int32_t vocab_size, std::span<const std::int32_t> eos_token_ids,
                                 std::span<const std::int32_t> tokens, std::int32_t num_prompt_tokens)
    : params_(std::move(params)), seed_(seed), vocab_size_(vocab_size), num_prompt_tokens_(num_prompt_tokens) {
  CHECK(params_ != nullptr);
  CHECK_LE(num_prompt_tokens, static_cast<std::int32_t>(tokens.size()));
  has_penalties_ =
      params_->repetition_penalty != 1.0F || params_->presence_penalty != 0.0F || params_->frequency_penalty != 0.0F;
  if (has_penalties_) {
    for (std::size_t i = 0; i < tokens.size(); ++i) see(tokens[i], i >= static_cast<std::size_t>(num_prompt_tokens));
  }
  if (params_->min_tokens > 0) {
    end_ids_ = params_->stop_token_ids;
    if (!params_->ignore_eos) end_ids_.insert(end_ids_.end(), eos_token_ids.begin(), eos_token_ids.end());
    std::erase_if(end_ids_, [this](std::int32_t id) { return !in_vocabulary(id); });
  }
  all_allowed_ = params_->allowed_token_ids.empty();
  allowed_ = params_->allowed_token_ids;
  std::erase_if(allowed_, [this](std::int32_t id) { return !in_vocabulary(id); });
  std::sort(allowed_.begin(), allowed_.end());
  allowed_.erase(std::unique(allowed_.begin(), allowed_.end()), allowed_.end());
}

void SequenceSampler::see(std::int32_t token, bool is_output) {
  if (!in_vocabulary(token)) return;
  const auto [at, is_new] = seen_index_.try_emplace(token, static_cast<std::int32_t>(seen_.size()));
  if (is_new) seen_.push_back({token, 0});
  if (is_output) ++seen_[static_cast<std::size_t>(at->second)].num_outputs;
}

void SequenceSampler::append(std::int32_t token) {
  if (has_penalties_) see(token, true);
}

bool SequenceSampler::edits(std::int64_t num_outputs) const {
  return has_penalties_ || !params_->logit_bias.empty() || !params_->bad_words.empty() ||
         (num_outputs < params_->min_tokens && !end_ids_.empty());
}

void SequenceSampler::edit(std::span<float> row, std::span<const std::int32_t> tokens, std::int64_t num_outputs,
                           RowScratch& scratch) const {
  scratch.originals.clear();
  for (const auto& word : params_->bad_words) {
    if (!word.empty() && in_vocabulary(word.back()) && completes(word, tokens)) {
      change(row, word.back(), kMinusInfinity, scratch);
    }
  }
  if (num_outputs < params_->min_tokens) {
    for (const std::int32_t id : end_ids_) change(row, id, kMinusInfinity, scratch);
  }
  for (const LogitBias& bias : params_->logit_bias) {
    if (!in_vocabulary(bias.token_id)) continue;
    change(row, bias.token_id, row[static_cast<std::size_t>(bias.token_id)] + bias.bias, scratch);
  }
  for (const SeenToken& seen : seen_)
    change(row, seen.id, penalised(row[static_cast<std::size_t>(seen.id)], seen), scratch);
}

float SequenceSampler::penalised(float logit, const SeenToken& seen) const {
  const float repetition = params_->repetition_penalty;
  if (repetition != 1.0F) {
    logit = std::clamp(logit > 0.0F ? logit / repetition : logit * repetition, -kLargest, kLargest);
  }
  if (seen.num_outputs == 0) return logit;
  return logit - (params_->frequency_penalty * static_cast<float>(seen.num_outputs) + params_->presence_penalty);
}

/// The allowed ids that are not masked, as candidates; false if none is left.
bool SequenceSampler::list_allowed(std::span<const float> row, RowScratch& scratch) const {
  scratch.candidates.clear();
  for (const std::int32_t id : allowed_) {
    const float logit = row[static_cast<std::size_t>(id)];
    if (logit != kMinusInfinity) scratch.candidates.push_back({logit, id});
  }
  return !scratch.candidates.empty();
}

std::optional<std::int32_t> SequenceSampler::best(std::span<const float> row, RowScratch& scratch) const {
  if (all_allowed_) return arg_max(row, scratch.maxima);
  if (!list_allowed(row, scratch)) return std::nullopt;
  return std::min_element(scratch.candidates.begin(), scratch.candidates.end(), better)->id;
}

std::optional<Kept> SequenceSampler::filter(const RowLoops& loops, std::span<const float> row,
                                            RowScratch& scratch) const {
  const DrawParams params{params_->temperature, params_->top_k, params_->top_p, params_->min_p};
  if (all_allowed_) return filter_row(loops, row, params, scratch);
  if (!list_allowed(row, scratch)) return std::nullopt;
  return filter_candidates(params, scratch);
}

/// Calls `pick` on the row as the wishes of the request have changed it.
template <typename Pick>
std::optional<std::int32_t> SequenceSampler::edit_and_pick(const RowLoops& loops, std::span<float> row,
                                                           std::span<const std::int32_t> tokens, RowScratch& scratch,
                                                           TokenLogprobs* logprobs, Pick&& pick) const {
  const std::int64_t num_outputs = static_cast<std::int64_t>(tokens.size()) - num_prompt_tokens_;
  const bool edited = edits(num_outputs);
  std::optional<RowLogprobs> raw;
  if (logprobs != nullptr && wants_logprobs()) {
    if (!scan_row(loops, row, scratch)) return std::nullopt;
    raw.emplace(loops, row, scratch);
    raw->top(params_->num_logprobs, scratch, logprobs->top);
    if (edited) edit(row, tokens, num_outputs, scratch);
    if (edited && !scan_row(loops, row, scratch)) return std::nullopt;
  } else {
    if (edited) edit(row, tokens, num_outputs, scratch);
    if (!scan_row(loops, row, scratch)) return std::nullopt;
  }
  const std::optional<std::int32_t> token = pick();
  if (raw && token) {
    if (edited) {
      for (auto at = scratch.originals.rbegin(); at != scratch.originals.rend(); ++at) {
        row[static_cast<std::size_t>(at->id)] = at->logit;
      }
    }
    logprobs->chosen = raw->token(*token);
  }
  return token;
}

std::optional<std::int32_t> SequenceSampler::draw(const RowLoops& loops, std::span<float> row,
                                                  std::span<const std::int32_t> tokens, RowScratch& scratch,
                                                  TokenLogprobs* logprobs) const {
  return edit_and_pick(loops, row, tokens, scratch, logprobs, [&]() -> std::optional<std::int32_t> {
    if (is_greedy()) return best(row, scratch);
    const std::optional<Kept> kept = filter(loops, row, scratch);
    if (!kept) return std::nullopt;
    return draw_kept(*kept, key(tokens.size(), DrawPurpose::kToken), scratch);
  });
}

std::optional<std::int32_t> SequenceSampler::draw_with(const RowLoops& loops, std::span<float> row,
                                                       std::span<const std::int32_t> tokens, RowScratch& scratch,
                                                       TokenLogprobs* logprobs, const Choose& choose) const {
  CHECK(!is_greedy());
  return edit_and_pick(loops, row, tokens, scratch, logprobs, [&]() -> std::optional<std::int32_t> {
    const std::optional<Kept> kept = filter(loops, row, scratch);
    if (!kept) return std::nullopt;
    return choose(scratch, spread_kept(*kept, static_cast<std::int32_t>(row.size()), scratch));
  });
}

}  // namespace thalweg::sampling
