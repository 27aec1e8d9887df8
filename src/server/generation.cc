#include "server/generation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace thalweg::server {
namespace {

RequestId request_of(const Event& event) {
  return std::visit([](const auto& e) { return e.request_id; }, event);
}

std::int32_t sequence_of(const Event& event) {
  return std::visit([](const auto& e) { return e.sequence_index; }, event);
}

ApiError error_of(const FinishEvent& event) {
  if (event.error) return ApiError(*event.error);
  return ApiError(503, "cancelled", "the server ended the request before it was complete");
}

/// The worst of its sequences is the outcome of a request.
RequestOutcome worse(RequestOutcome a, RequestOutcome b) { return std::max(a, b); }

}  // namespace

Generation::Generation(PreparedRequest request, std::unique_ptr<AnswerWriter> writer, Service& service,
                       double arrival_s)
    : request_(std::move(request)), writer_(std::move(writer)), service_(service), arrival_s_(arrival_s) {
  ++service_.num_generating;
  prompts_.resize(request_.prompts.size());
  std::int32_t index = 0;
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    PromptState& prompt = prompts_[p];
    prompt.part = std::move(request_.prompts[p].part);
    prompt.num_open = request_.prompts[p].generate.num_sequences;
    prompt.needs_logprobs = request_.prompts[p].generate.num_prompt_logprobs >= 0;
    prompt.summary.num_prompt_tokens = static_cast<std::int64_t>(request_.prompts[p].generate.prompt_ids.size());
    prompt.last_token_s.resize(static_cast<std::size_t>(prompt.num_open));
    prompt.choices.reserve(static_cast<std::size_t>(prompt.num_open));
    for (std::int32_t s = 0; s < prompt.num_open; ++s) {
      prompt.choices.emplace_back(index++, service_.model.tokenizer, request_.answer, request_.end_rule,
                                  request_.completion_parser ? request_.completion_parser->clone() : nullptr);
    }
  }
  num_unfinished_choices_ = index;
}

Generation::~Generation() { --service_.num_generating; }

void Generation::submit(GenerationTable& table) {
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    GenerateRequest generate = std::move(request_.prompts[p].generate);
    const std::int32_t num_sequences = generate.num_sequences;
    const std::int32_t max_tokens = generate.max_tokens;
    const Result<RequestId> id = service_.engine.submit(std::move(generate), table.sink());
    if (!id) return fail(ApiError(id.error()));
    prompts_[p].id = *id;
    ++num_submitted_;
    service_.metrics.admitted(num_sequences, max_tokens);
    table.add(*id, shared_from_this(), p);
  }
}

bool Generation::on_event(std::size_t index, Event event) {
  PromptState& prompt = prompts_[index];
  if (prompt.needs_logprobs && !prompt.has_started && sequence_of(event) != 0) {
    prompt.early.push_back(std::move(event));
    return false;
  }
  // If sequence 0 ends without a start there will be no logprobs to wait for.
  prompt.has_started |= std::holds_alternative<FinishEvent>(event);
  process(prompt, std::move(event));
  if (prompt.has_started) {
    for (Event& early : std::exchange(prompt.early, {})) process(prompt, std::move(early));
  }
  if (prompt.num_open > 0) return false;
  prompt.summary.total_s = service_.clock.now() - arrival_s_;
  service_.metrics.finished(prompt.summary);
  return true;
}

void Generation::process(PromptState& prompt, Event event) {
  if (auto* start = std::get_if<StartEvent>(&event)) {
    on_start(prompt, std::move(*start));
  } else if (auto* tokens = std::get_if<TokenEvent>(&event)) {
    on_tokens(prompt, std::move(*tokens));
  } else {
    on_finish(prompt, std::get<FinishEvent>(event));
  }
}

void Generation::on_start(PromptState& prompt, StartEvent event) {
  if (event.sequence_index == 0) {
    prompt.has_started = true;
    prompt.part.logprobs = std::move(event.prompt_logprobs);
    prompt.num_cached_tokens = event.num_cached_tokens;
  }
  if (!writer_) return;
  std::vector<ChoiceDelta> deltas;
  prompt.choices[static_cast<std::size_t>(event.sequence_index)].start(prompt.part, deltas);
  write(std::move(deltas));
}

void Generation::on_tokens(PromptState& prompt, TokenEvent event) {
  const auto sequence = static_cast<std::size_t>(event.sequence_index);
  const double now = service_.clock.now();
  double& last = prompt.last_token_s[sequence];
  if (last > 0.0) {
    service_.metrics.next_token(now - last);
  } else if (!std::exchange(has_token_, true)) {
    service_.metrics.first_token(now - arrival_s_);
  }
  last = now;
  ChoiceStream& choice = prompt.choices[sequence];
  if (!writer_ || choice.finished()) return;
  const std::int32_t index = event.sequence_index;
  std::vector<ChoiceDelta> deltas;
  choice.push(std::move(event), deltas);
  write(std::move(deltas));
  if (!choice.finished()) return;
  service_.engine.cancel_sequence(prompt.id, index);
  choice_is_finished();
}

void Generation::on_finish(PromptState& prompt, const FinishEvent& event) {
  CHECK_GT(prompt.num_open, 0);
  --prompt.num_open;
  ChoiceStream& choice = prompt.choices[static_cast<std::size_t>(event.sequence_index)];
  FinishedRequest& summary = prompt.summary;
  summary.num_output_tokens += choice.finished() ? choice.num_tokens() : event.num_output_tokens;
  summary.timings.queue_s = std::max(summary.timings.queue_s, event.timings.queue_s);
  summary.timings.prefill_s = std::max(summary.timings.prefill_s, event.timings.prefill_s);
  summary.timings.decode_s = std::max(summary.timings.decode_s, event.timings.decode_s);

  // A stop string has ended the choice before the engine knew.
  if (choice.finished()) return;
  switch (event.reason) {
    case FinishReason::kStop:
      break;
    case FinishReason::kLength:
      summary.outcome = worse(summary.outcome, RequestOutcome::kLength);
      break;
    case FinishReason::kCancelled:
      summary.outcome = worse(summary.outcome, RequestOutcome::kAborted);
      return fail(error_of(event));
    case FinishReason::kError:
      summary.outcome = worse(summary.outcome, RequestOutcome::kFailed);
      return fail(error_of(event));
  }
  if (!writer_) return;
  std::vector<ChoiceDelta> deltas;
  if (!choice.started()) choice.start(prompt.part, deltas);
  choice.finish(event, deltas);
  write(std::move(deltas));
  choice_is_finished();
}

void Generation::write(std::vector<ChoiceDelta> deltas) {
  const Usage so_far = request_.answer.continuous_usage ? usage() : Usage{};
  for (ChoiceDelta& delta : deltas) writer_->add(std::move(delta), so_far);
}

void Generation::choice_is_finished() {
  if (--num_unfinished_choices_ > 0) return;
  const std::unique_ptr<AnswerWriter> writer = std::move(writer_);
  writer->complete(usage());
}

void Generation::fail(const ApiError& error) {
  cancel_all();
  if (!writer_) return;
  const std::unique_ptr<AnswerWriter> writer = std::move(writer_);
  writer->fail(error);
}

void Generation::flush() {
  if (writer_) writer_->flush();
}

void Generation::abandon() {
  if (!writer_) return;
  retired_writer_ = std::move(writer_);  // its flush() may be what found out
  cancel_all();
}

void Generation::cancel_all() {
  for (std::size_t p = 0; p < num_submitted_; ++p) {
    if (prompts_[p].num_open > 0) service_.engine.cancel(prompts_[p].id);
  }
}

Usage Generation::usage() const {
  Usage usage;
  for (const PromptState& prompt : prompts_) {
    usage.num_prompt_tokens += prompt.summary.num_prompt_tokens;
    usage.num_cached_tokens += prompt.num_cached_tokens;
    for (const ChoiceStream& choice : prompt.choices) {
      usage.num_output_tokens += choice.num_tokens();
      usage.num_reasoning_tokens += choice.num_reasoning_tokens();
    }
  }
  return usage;
}

void GenerationTable::add(RequestId id, std::shared_ptr<Generation> generation, std::size_t prompt) {
  entries_.emplace(static_cast<std::uint64_t>(id), Entry{std::move(generation), prompt});
}

void GenerationTable::dispatch(std::vector<Event> events) {
  std::vector<std::shared_ptr<Generation>> touched;
  for (Event& event : events) {
    const auto found = entries_.find(static_cast<std::uint64_t>(request_of(event)));
    if (found == entries_.end()) {
      log(LogLevel::kError, "event for request {}, which is not open", static_cast<std::uint64_t>(request_of(event)));
      continue;
    }
    const auto [generation, prompt] = found->second;
    // Events of one request stand together, so looking at the last one finds nearly all repeats.
    if (touched.empty() || touched.back() != generation) touched.push_back(generation);
    // An answer that ends may let the next request of its connection in, so `found` is stale after this.
    const RequestId id = request_of(event);
    if (generation->on_event(prompt, std::move(event))) entries_.erase(static_cast<std::uint64_t>(id));
  }
  for (const std::shared_ptr<Generation>& generation : touched) generation->flush();
}

void GenerationTable::abandon_all() {
  for (auto& [id, entry] : entries_) entry.generation->abandon();
}

void GenerationTable::fail_all(const ApiError& error) {
  for (auto& [id, entry] : entries_) entry.generation->fail(error);
}

}  // namespace thalweg::server
