#include "speculative/draft_model_proposer.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "device/thread_pool.h"
#include "sampling/race.h"

namespace thalweg::speculative {

std::int64_t draft_logit_bytes(const DraftModelOptions& options) {
  const std::int64_t rounds = options.speculation.acceptance == AcceptanceMethod::kRejection ? options.max_drafts : 1;
  return rounds * options.max_slots * options.vocab_size * static_cast<std::int64_t>(sizeof(float));
}

DraftModelProposer::DraftModelProposer(models::DraftModel& model, const sampling::RowLoops& loops,
                                       const DraftModelOptions& options)
    : model_(model),
      loops_(loops),
      options_(options),
      limits_(static_cast<std::size_t>(options.max_slots)),
      logits_(static_cast<std::size_t>(draft_logit_bytes(options))) {
  CHECK_LE(options.max_drafts, model.block_size());
  for (std::int32_t slot = 0; slot < options.max_slots; ++slot) release(slot);
  model_.reserve(options.max_slots);
}

void DraftModelProposer::release(step::SlotId slot) {
  limits_[static_cast<std::size_t>(slot)] = SurvivalLimit(options_.max_drafts, options_.speculation.min_survival);
}

/// What held is told by the confidences sooner than by the outcome.
void DraftModelProposer::observe(step::SlotId, std::int32_t, std::int32_t) {}

std::span<float> DraftModelProposer::logits_of(std::int32_t round, std::size_t request) {
  const auto vocab_size = static_cast<std::size_t>(options_.vocab_size);
  const std::size_t first = keeps_distributions() ? static_cast<std::size_t>(round * options_.max_slots) : 0;
  return {logits_.as<float>() + (first + request) * vocab_size, vocab_size};
}

void DraftModelProposer::propose(device::Stream& stream, const models::CacheMemory& cache,
                                 std::span<const DraftRequest> requests, Drafts& drafts) {
  begin(stream, cache, requests);
  for (std::int32_t round = 0; round < num_rounds(); ++round) {
    model_.next(stream, round, previous_, logits_of(round, 0).data(), confidences_.data());
    draw_round(stream, round, requests);
  }
  finish(requests, drafts);
}

void DraftModelProposer::begin(device::Stream& stream, const models::CacheMemory& cache,
                               std::span<const DraftRequest> requests) {
  CHECK_LE(requests.size(), limits_.size());
  queries_.clear();
  previous_.clear();
  drafts_.resize(requests.size());
  confidences_.resize(requests.size());
  scratch_.resize(static_cast<std::size_t>(stream.threads->num_threads()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    const auto position = static_cast<std::int32_t>(request.tokens->size()) - 1;
    queries_.push_back({request.slot, position, request.tokens->back()});
    previous_.push_back(request.tokens->back());
    Draft& draft = drafts_[i];
    draft.limit = std::min(request.max_drafts, limits_[static_cast<std::size_t>(request.slot)].next());
    draft.num_drawn = 0;
    draft.ended = false;
    draft.confidences.clear();
  }
  model_.begin(stream, queries_, cache);
}

/// A limit that follows confidences needs those of the drafts it has cut off, too.
std::int32_t DraftModelProposer::num_rounds() const {
  if (options_.speculation.min_survival > 0.0F) return options_.max_drafts;
  std::int32_t most = 0;
  for (const Draft& draft : drafts_) most = std::max(most, draft.limit);
  return most;
}

void DraftModelProposer::draw_round(device::Stream& stream, std::int32_t round,
                                    std::span<const DraftRequest> requests) {
  std::vector<std::string> errors(requests.size());
  stream.threads->parallel_for(static_cast<std::int64_t>(requests.size()), [&](std::int64_t task, int thread) {
    const auto i = static_cast<std::size_t>(task);
    try {
      draw(round, requests[i], drafts_[i], logits_of(round, i), scratch_[static_cast<std::size_t>(thread)]);
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!errors[i].empty()) throw std::runtime_error(errors[i]);
    previous_[i] = requests[i].tokens->back();
    drafts_[i].confidences.push_back(drafts_[i].ended ? 0.0F : confidences_[i]);
  }
}

/// Draws a draft and adds it to the request's tokens; where distributions are kept, `logits` becomes the draft's.
void DraftModelProposer::draw(std::int32_t round, const DraftRequest& request, Draft& draft, std::span<float> logits,
                              sampling::RowScratch& scratch) const {
  if (draft.ended) return;
  const sampling::SequenceSampler& sampler = *request.sampler;
  std::optional<std::int32_t> token;
  if (keeps_distributions() && !sampler.is_greedy()) {
    const sampling::DrawKey key =
        sampler.key(request.tokens->size(), sampling::DrawPurpose::kDraft, static_cast<std::uint32_t>(round));
    const auto choose = [&](sampling::RowScratch& kept, double total) {
      const std::int32_t id = sampling::race_row(key, kept.weights, kept.sums);
      std::ranges::transform(kept.weights, logits.begin(),
                             [&](float weight) { return static_cast<float>(weight / total); });
      return id;
    };
    token = sampler.draw_with(loops_, logits, *request.tokens, scratch, nullptr, choose);
  } else {
    token = sampler.draw(loops_, logits, *request.tokens, scratch, nullptr);
  }
  draft.ended = !token;
  if (draft.ended) return;
  request.tokens->push_back(*token);
  ++draft.num_drawn;
}

/// Takes the drafts off the requests' tokens again.
void DraftModelProposer::finish(std::span<const DraftRequest> requests, Drafts& drafts) {
  drafts.token_ids.clear();
  drafts.distributions.clear();
  drafts.cu_drafts.assign(1, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::int32_t>& tokens = *requests[i].tokens;
    const Draft& draft = drafts_[i];
    const std::size_t first = tokens.size() - static_cast<std::size_t>(draft.num_drawn);
    for (std::int32_t round = 0; round < std::min(draft.num_drawn, draft.limit); ++round) {
      drafts.token_ids.push_back(tokens[first + static_cast<std::size_t>(round)]);
      if (!keeps_distributions()) continue;
      drafts.distributions.push_back(requests[i].sampler->is_greedy() ? nullptr : logits_of(round, i).data());
    }
    tokens.resize(first);
    drafts.cu_drafts.push_back(static_cast<std::int32_t>(drafts.token_ids.size()));
    limits_[static_cast<std::size_t>(requests[i].slot)].observe(draft.confidences);
  }
}

}  // namespace thalweg::speculative
