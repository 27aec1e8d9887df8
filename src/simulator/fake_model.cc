#include "simulator/fake_model.h"

#include <algorithm>

#include "scheduler/sequence.h"

namespace thalweg::simulator {
namespace {

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCDU;
  value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53U;
  return value ^ (value >> 33);
}

bool contains(std::span<const std::int32_t> ids, std::int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

std::uint64_t FakeModel::extend(std::uint64_t history, std::int32_t token_id) {
  return mix(history * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(token_id) + 1);
}

bool FakeModel::is_end(std::int32_t token_id, const SamplingParams& sampling) const {
  return contains(eos_token_ids, token_id) || contains(sampling.stop_token_ids, token_id);
}

std::int32_t FakeModel::next_token(std::uint64_t history, std::uint64_t seed, std::int32_t num_output_tokens,
                                   const SamplingParams& sampling) const {
  const std::uint64_t drawn = mix(history ^ mix(seed + static_cast<std::uint64_t>(num_output_tokens)));
  auto token_id = static_cast<std::int32_t>(drawn % static_cast<std::uint64_t>(vocab_size));
  while (num_output_tokens < sampling.min_tokens && is_end(token_id, sampling)) token_id = (token_id + 1) % vocab_size;
  return token_id;
}

bool FakeModel::fails(std::uint64_t history, std::uint64_t seed) const {
  constexpr double kScale = 1.0 / 18446744073709551616.0;
  return static_cast<double>(mix(history + mix(seed) + 1)) * kScale < failure_share;
}

FakeOutput expected_output(const FakeModel& model, const GenerateRequest& request, std::int32_t sequence_index) {
  const SamplingParams& sampling = request.sampling;
  const std::uint64_t seed = scheduler::sequence_seed(*sampling.seed, sequence_index);
  std::uint64_t history = FakeModel::kEmptyHistory;
  for (std::int32_t token_id : request.prompt_ids) history = FakeModel::extend(history, token_id);

  FakeOutput output;
  while (static_cast<std::int32_t>(output.token_ids.size()) < request.max_tokens) {
    if (model.fails(history, seed)) {
      output.reason = FinishReason::kError;
      return output;
    }
    const auto num_output_tokens = static_cast<std::int32_t>(output.token_ids.size());
    const std::int32_t token_id = model.next_token(history, seed, num_output_tokens, sampling);
    history = FakeModel::extend(history, token_id);
    output.token_ids.push_back(token_id);
    if (num_output_tokens < sampling.min_tokens) continue;
    const bool named = contains(sampling.stop_token_ids, token_id);
    if (named || (!sampling.ignore_eos && contains(model.eos_token_ids, token_id))) {
      output.reason = FinishReason::kStop;
      if (named) output.stop_token_id = token_id;
      return output;
    }
  }
  return output;
}

}  // namespace thalweg::simulator
