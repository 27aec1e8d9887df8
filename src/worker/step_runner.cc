#include "worker/step_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "base/check.h"
#include "device/thread_pool.h"
#include "sampling/logprobs.h"
#include "speculative/rejection.h"

namespace thalweg::worker {

StepRunner::StepRunner(std::unique_ptr<models::Model> model, device::Stream stream, const WorkerOptions& options,
                       const MemoryPlan& plan, std::unique_ptr<speculative::Proposer> proposer)
    : model_(std::move(model)),
      stream_(stream),
      options_(options),
      plan_(plan),
      loops_(sampling::row_loops(stream.cpu_level)),
      proposer_(std::move(proposer)),
      blocks_(static_cast<std::size_t>(plan.cache_bytes)),
      states_(static_cast<std::size_t>(plan.state_bytes)),
      logits_(static_cast<std::size_t>(plan.logit_bytes)),
      slots_(static_cast<std::size_t>(plan.max_num_seqs)),
      inputs_(model_->info().cache.block_size) {
  CHECK(stream_.threads != nullptr);
  scratch_.resize(static_cast<std::size_t>(stream_.threads->num_threads()));
  model_->reserve(plan_.max_num_batched_tokens);
}

step::StepResult StepRunner::run(const step::StepPlan& plan) {
  step::StepResult result;
  const double begin = clock_.now();
  if (!fatal_) {
    try {
      execute(plan, result);
    } catch (const std::exception& error) {
      fatal_ = Error{ErrorCode::kUnavailable, fmt::format("step {} failed: {}", plan.step_id, error.what()), {}};
    }
  }
  if (fatal_) {
    result = {};
    result.rows.resize(plan.rows.size());
    result.fatal.push_back(*fatal_);
  }
  result.step_id = plan.step_id;
  result.execute_s = clock_.now() - begin;
  return result;
}

void StepRunner::execute(const step::StepPlan& plan, step::StepResult& result) {
  for (const step::SlotId id : plan.released_slots) release(id);
  for (const step::SequenceStart& sequence : plan.starts) start(sequence);
  append_blocks(plan);
  result.rows.resize(plan.rows.size());
  num_drawing_ = 0;
  propose(plan);
  score_prompts(plan, result);
  add_rows(plan, result);
  CHECK_LE(result.num_computed_tokens, plan_.max_num_batched_tokens);
  if (inputs_.empty()) return;
  forward();
  draw_all();
  observe_drafts(plan);
  gather(result);
}

StepRunner::Slot& StepRunner::used_slot(step::SlotId id) {
  CHECK(id >= 0 && id < static_cast<step::SlotId>(slots_.size()));
  Slot& slot = slots_[static_cast<std::size_t>(id)];
  CHECK(slot.sampler.has_value());
  return slot;
}

void StepRunner::release(step::SlotId id) {
  used_slot(id) = Slot();
  if (proposer_) proposer_->release(id);
}

void StepRunner::start(const step::SequenceStart& start) {
  CHECK(start.slot >= 0 && start.slot < static_cast<step::SlotId>(slots_.size()));
  Slot& slot = slots_[static_cast<std::size_t>(start.slot)];
  CHECK(!slot.sampler.has_value());
  CHECK(start.token_ids != nullptr && !start.token_ids->empty());
  slot.tokens = *start.token_ids;
  slot.num_prompt_tokens = start.num_prompt_tokens;
  slot.num_prompt_logprobs = start.num_prompt_logprobs;
  const auto num_tokens = static_cast<std::int32_t>(slot.tokens.size());
  CHECK(start.num_cached_tokens >= 0 && start.num_cached_tokens < num_tokens);
  slot.num_cached_tokens = start.num_cached_tokens;
  const std::int32_t tail = model_->info().prefill_tail_tokens;
  const bool wants_all_logits = start.num_prompt_logprobs >= 0;
  slot.full_from = tail > 0 && !wants_all_logits ? std::max(num_tokens - tail, 0) : 0;
  slot.sampler.emplace(start.sampling, start.seed, model_->info().vocab_size, options_.eos_token_ids, slot.tokens,
                       start.num_prompt_tokens);
  // A model finds the state of a new sequence zeroed.
  if (const auto bytes = static_cast<std::size_t>(model_->info().cache.state_bytes_per_slot); bytes > 0) {
    std::memset(states_.data() + static_cast<std::size_t>(start.slot) * bytes, 0, bytes);
  }
}

void StepRunner::append_blocks(const step::StepPlan& plan) {
  for (const step::SequenceRow& row : plan.rows) {
    CHECK_LE(static_cast<std::size_t>(row.first_new_block) + static_cast<std::size_t>(row.num_new_blocks),
             plan.block_ids.size());
    Slot& slot = used_slot(row.slot);
    for (std::int32_t i = 0; i < row.num_new_blocks; ++i) {
      const step::BlockId block = plan.block_ids[static_cast<std::size_t>(row.first_new_block + i)];
      CHECK(block >= 0 && block < plan_.num_blocks);
      slot.blocks.push_back(block);
    }
  }
}

/// Positions from the slot's last token on that its blocks and the model length still hold.
std::int32_t StepRunner::room_of(const Slot& slot) const {
  const std::int64_t places = static_cast<std::int64_t>(slot.blocks.size()) * model_->info().cache.block_size;
  const std::int64_t end = std::min<std::int64_t>(places, plan_.max_model_len);
  return static_cast<std::int32_t>(end - (static_cast<std::int64_t>(slot.tokens.size()) - 1));
}

void StepRunner::propose(const step::StepPlan& plan) {
  draft_requests_.clear();
  request_of_row_.assign(plan.rows.size(), -1);
  if (!proposer_) return;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const step::SequenceRow& row = plan.rows[i];
    if (row.num_known_tokens > 0 || !row.samples || row.max_draft_tokens <= 0) continue;
    Slot& slot = used_slot(row.slot);
    const std::int32_t max_drafts = std::min({row.max_draft_tokens, options_.num_draft_tokens, room_of(slot) - 1});
    if (max_drafts <= 0) continue;
    request_of_row_[i] = static_cast<std::int32_t>(draft_requests_.size());
    draft_requests_.push_back({row.slot, &slot.tokens, &*slot.sampler, max_drafts});
  }
  if (!draft_requests_.empty()) proposer_->propose(stream_, cache_memory(), draft_requests_, drafts_);
}

/// Prompt logprobs need the logits of every prompt token. Such tokens run in forwards of their own, few
/// at a time, so that logits never take more than the planned memory however long the prompt.
void StepRunner::score_prompts(const step::StepPlan& plan, step::StepResult& result) {
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const step::SequenceRow& row = plan.rows[i];
    const Slot& slot = used_slot(row.slot);
    const std::int32_t end = std::min(row.first_position + row.num_known_tokens, slot.num_prompt_tokens - 1);
    if (slot.num_prompt_logprobs < 0 || row.num_known_tokens == 0 || row.first_position >= end) continue;
    result.prompt_logprobs.resize(plan.rows.size());
    for (std::int32_t first = row.first_position; first < end; first += plan_.prompt_logprob_tokens) {
      const std::int32_t num_tokens = std::min(plan_.prompt_logprob_tokens, end - first);
      inputs_.clear();
      RowInput input = known_tokens(row.slot, slot, first, num_tokens);
      input.num_logits = num_tokens;
      inputs_.add(input);
      result.num_computed_tokens += num_tokens;
      forward();
      if (!score_piece(slot, first, num_tokens, result.prompt_logprobs[i])) result.rows[i].failed = true;
    }
  }
}

bool StepRunner::score_piece(const Slot& slot, std::int32_t first_position, std::int32_t num_tokens,
                             std::vector<TokenLogprobs>& out) {
  const std::size_t first_out = out.size();
  out.resize(first_out + static_cast<std::size_t>(num_tokens));
  std::vector<std::string> errors(static_cast<std::size_t>(num_tokens));
  std::vector<std::uint8_t> good(static_cast<std::size_t>(num_tokens), 0);
  stream_.threads->parallel_for(num_tokens, [&](std::int64_t task, int thread) {
    const auto i = static_cast<std::size_t>(task);
    try {
      good[i] =
          sampling::score_token(loops_, logits_of(static_cast<std::int32_t>(i)),
                                slot.tokens[static_cast<std::size_t>(first_position) + i + 1], slot.num_prompt_logprobs,
                                scratch_[static_cast<std::size_t>(thread)], out[first_out + i]);
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  });
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
  return std::ranges::all_of(good, [](std::uint8_t x) { return x != 0; });
}

RowInput StepRunner::known_tokens(step::SlotId id, const Slot& slot, std::int32_t first_position,
                                  std::int32_t num_tokens) {
  return {.slot = id,
          .token_ids = std::span(slot.tokens).first(static_cast<std::size_t>(first_position + num_tokens)),
          .first_position = first_position,
          .blocks = slot.blocks,
          .cached_len = slot.num_cached_tokens,
          .full_from = slot.full_from};
}

void StepRunner::add_rows(const step::StepPlan& plan, step::StepResult& result) {
  inputs_.clear();
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i].num_known_tokens == 0) {
      add_continued(plan, i, result);
    } else {
      add_known(plan, i, result);
    }
  }
}

void StepRunner::add_continued(const step::StepPlan& plan, std::size_t row, step::StepResult& result) {
  const step::SequenceRow& wanted = plan.rows[row];
  Slot& slot = used_slot(wanted.slot);
  if (room_of(slot) < 1) {
    result.rows[row].failed = true;
    return;
  }
  const std::int32_t request = request_of_row_[row];
  const std::span<const std::int32_t> drafts =
      request < 0 ? std::span<const std::int32_t>() : drafts_.of(static_cast<std::size_t>(request));
  const auto num_tokens = static_cast<std::int32_t>(1 + drafts.size());
  RowInput input = known_tokens(wanted.slot, slot, static_cast<std::int32_t>(slot.tokens.size()) - 1, 1);
  input.draft_ids = drafts;
  input.num_logits = wanted.samples ? num_tokens : 0;
  input.full_from = 0;
  const std::int32_t first_logit = inputs_.add(input);
  result.num_computed_tokens += num_tokens;
  result.rows[row].num_draft_tokens = num_tokens - 1;
  if (!wanted.samples) return;
  DrawingRow& drawing = new_drawing_row(row, slot, first_logit);
  drawing.drafts = drafts;
  if (request >= 0) drawing.distributions = drafts_.distributions_of(static_cast<std::size_t>(request));
}

void StepRunner::add_known(const step::StepPlan& plan, std::size_t row, step::StepResult& result) {
  const step::SequenceRow& wanted = plan.rows[row];
  Slot& slot = used_slot(wanted.slot);
  std::int32_t first = wanted.first_position;
  const std::int32_t end = first + wanted.num_known_tokens;
  const auto num_held = static_cast<std::int32_t>(slot.tokens.size());
  CHECK_LE(end, num_held);
  if (slot.num_prompt_logprobs >= 0) first = std::max(first, std::min(end, slot.num_prompt_tokens - 1));
  if (first == end) return;  // all of them have run for their logprobs
  RowInput input = known_tokens(wanted.slot, slot, first, end - first);
  input.num_logits = wanted.samples ? 1 : 0;
  const std::int32_t first_logit = inputs_.add(input);
  result.num_computed_tokens += end - first;
  if (!wanted.samples) return;
  CHECK_EQ(end, num_held);
  if (!result.rows[row].failed) new_drawing_row(row, slot, first_logit);
}

StepRunner::DrawingRow& StepRunner::new_drawing_row(std::size_t row, Slot& slot, std::int32_t first_logit) {
  if (num_drawing_ == drawing_.size()) drawing_.emplace_back();
  DrawingRow& drawing = drawing_[num_drawing_++];
  drawing.row = row;
  drawing.slot = &slot;
  drawing.drafts = {};
  drawing.distributions = {};
  drawing.first_logit = first_logit;
  drawing.num_accepted = 0;
  drawing.token_ids.clear();
  drawing.logprobs.clear();
  drawing.failed = false;
  drawing.error.clear();
  return drawing;
}

void StepRunner::forward() {
  CHECK_LE(inputs_.num_logits(), plan_.max_logit_rows);
  model_->forward(stream_, inputs_.view(), cache_memory(), logits_.as<float>());
}

models::CacheMemory StepRunner::cache_memory() {
  return {blocks_.data(), plan_.num_blocks, states_.data(), plan_.max_num_seqs};
}

std::span<float> StepRunner::logits_of(std::int32_t index) {
  const auto vocab_size = static_cast<std::size_t>(model_->info().vocab_size);
  return {logits_.as<float>() + static_cast<std::size_t>(index) * vocab_size, vocab_size};
}

/// Sequences are independent, so each is a task; drafts of one sequence are drawn one after another.
void StepRunner::draw_all() {
  if (num_drawing_ == 0) return;
  stream_.threads->parallel_for(static_cast<std::int64_t>(num_drawing_), [&](std::int64_t task, int thread) {
    DrawingRow& drawing = drawing_[static_cast<std::size_t>(task)];
    try {
      draw(drawing, scratch_[static_cast<std::size_t>(thread)]);
    } catch (const std::exception& error) {
      drawing.error = error.what();
    }
  });
  for (std::size_t i = 0; i < num_drawing_; ++i) {
    if (!drawing_[i].error.empty()) throw std::runtime_error(drawing_[i].error);
  }
}

void StepRunner::draw(DrawingRow& drawing, sampling::RowScratch& scratch) {
  Slot& slot = *drawing.slot;
  const auto& forced = options_.speculation.forced_acceptance;
  const std::int32_t num_forced =
      forced ? speculative::forced_acceptance(
                   *forced, slot.sampler->key(slot.tokens.size(), sampling::DrawPurpose::kForcedAcceptance))
             : 0;
  const auto judge_and_take = [&](std::size_t i) {
    TokenLogprobs* logprobs = slot.sampler->wants_logprobs() ? &drawing.logprobs.emplace_back() : nullptr;
    const std::optional<speculative::Verdict> verdict =
        forced ? judge_forced(drawing, i, static_cast<std::int32_t>(i) < num_forced, scratch, logprobs)
               : judge(drawing, i, scratch, logprobs);
    if (verdict) {
      drawing.token_ids.push_back(verdict->token);
      slot.tokens.push_back(verdict->token);
      slot.sampler->append(verdict->token);
    } else if (logprobs != nullptr) {
      drawing.logprobs.pop_back();
    }
    return verdict;
  };
  const speculative::Acceptance acceptance = speculative::accept(drawing.drafts.size(), judge_and_take);
  drawing.failed = acceptance.failed;
  drawing.num_accepted = acceptance.num_accepted;
}

/// The token at the place of the row's draft i, or behind its drafts.
std::optional<speculative::Verdict> StepRunner::judge(const DrawingRow& drawing, std::size_t i,
                                                      sampling::RowScratch& scratch, TokenLogprobs* logprobs) {
  const Slot& slot = *drawing.slot;
  const sampling::SequenceSampler& sampler = *slot.sampler;
  const std::span<float> logits = logits_of(drawing.first_logit + static_cast<std::int32_t>(i));
  const bool has_draft = i < drawing.drafts.size();
  if (!has_draft || sampler.is_greedy() || options_.speculation.acceptance == AcceptanceMethod::kMatch) {
    const std::optional<std::int32_t> token = sampler.draw(loops_, logits, slot.tokens, scratch, logprobs);
    if (!token) return std::nullopt;
    return speculative::Verdict{*token, has_draft && *token == drawing.drafts[i]};
  }
  speculative::Verdict verdict;
  const speculative::RejectionKeys keys{sampler.key(slot.tokens.size(), sampling::DrawPurpose::kAcceptance),
                                        sampler.key(slot.tokens.size(), sampling::DrawPurpose::kResidual)};
  const auto choose = [&](sampling::RowScratch& kept, double total) {
    const float* q = drawing.distributions.empty() ? nullptr : drawing.distributions[i];
    verdict = speculative::reject_or_accept(drawing.drafts[i], q, kept, total, keys);
    return verdict.token;
  };
  if (!sampler.draw_with(loops_, logits, slot.tokens, scratch, logprobs, choose)) return std::nullopt;
  return verdict;
}

/// For benchmarks: the verdict is known before, the work is done all the same.
std::optional<speculative::Verdict> StepRunner::judge_forced(const DrawingRow& drawing, std::size_t i, bool holds,
                                                             sampling::RowScratch& scratch, TokenLogprobs* logprobs) {
  std::optional<speculative::Verdict> verdict = judge(drawing, i, scratch, logprobs);
  if (!verdict || i >= drawing.drafts.size()) return verdict;
  verdict->holds = holds;
  if (!holds) return verdict;
  verdict->token = drawing.drafts[i];
  if (logprobs != nullptr) {
    // Judging has restored the row.
    sampling::score_token(loops_, logits_of(drawing.first_logit + static_cast<std::int32_t>(i)), verdict->token,
                          drawing.slot->sampler->num_logprobs(), scratch, *logprobs);
  }
  return verdict;
}

/// Tells the proposer what became of its drafts.
void StepRunner::observe_drafts(const step::StepPlan& plan) {
  for (const DrawingRow& drawing : std::span(drawing_).first(num_drawing_)) {
    if (drawing.drafts.empty()) continue;
    proposer_->observe(plan.rows[drawing.row].slot, static_cast<std::int32_t>(drawing.drafts.size()),
                       drawing.num_accepted);
  }
}

void StepRunner::gather(step::StepResult& result) const {
  const std::span drawn = std::span(drawing_).first(num_drawing_);
  std::size_t num_tokens = 0;
  for (const DrawingRow& drawing : drawn) num_tokens += drawing.token_ids.size();
  result.token_ids.reserve(num_tokens);
  const bool any_logprobs = std::ranges::any_of(drawn, [](const DrawingRow& d) { return !d.logprobs.empty(); });
  if (any_logprobs) result.logprobs.resize(num_tokens);
  for (const DrawingRow& drawing : drawn) {
    step::RowResult& row = result.rows[drawing.row];
    row.first_token = static_cast<std::int32_t>(result.token_ids.size());
    row.num_tokens = static_cast<std::int32_t>(drawing.token_ids.size());
    row.failed = drawing.failed;
    if (any_logprobs) std::ranges::copy(drawing.logprobs, result.logprobs.begin() + row.first_token);
    result.token_ids.insert(result.token_ids.end(), drawing.token_ids.begin(), drawing.token_ids.end());
  }
}

}  // namespace thalweg::worker
