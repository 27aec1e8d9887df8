#include "server/choice_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/json_writer.h"

namespace thalweg::server {

ChoiceStream::ChoiceStream(std::int32_t index, const text::Tokenizer& tokenizer, const AnswerOptions& options,
                           const EndRule& end_rule, std::unique_ptr<text::CompletionParser> parser)
    : index_(index),
      tokenizer_(tokenizer),
      options_(options),
      end_rule_(end_rule),
      decoder_(tokenizer, {.stop = options.stop,
                           .include_stop = options.include_stop,
                           .skip_special_tokens = options.skip_special_tokens,
                           .min_tokens = end_rule.min_tokens}),
      parser_(std::move(parser)) {}

void ChoiceStream::start(const PromptPart& prompt, std::vector<ChoiceDelta>& out) {
  CHECK(!started_);
  started_ = true;
  ChoiceDelta delta{.index = index_, .is_start = true};
  if (options_.return_token_ids) delta.prompt_token_ids = prompt.ids;
  if (options_.prompt_logprobs) delta.prompt_entries = prompt_entries(prompt);
  if (!options_.is_chat && options_.echo) {
    delta.text = prompt.echo;
    if (options_.logprobs) delta.entries = prompt_entries(prompt);
    text_offset_ = count_characters(prompt.echo);
  }
  out.push_back(std::move(delta));
  if (options_.is_chat && !prompt.echo.empty()) {
    out.push_back(ChoiceDelta{.index = index_, .text = prompt.echo});
  }
}

void ChoiceStream::push(TokenEvent event, std::vector<ChoiceDelta>& out) {
  if (finished_) return;
  CHECK(started_);
  for (std::size_t i = 0; i < event.token_ids.size() && !stop_; ++i) {
    std::optional<TokenLogprobs> logprobs;
    if (i < event.logprobs.size()) logprobs = std::move(event.logprobs[i]);
    take(event.token_ids[i], std::move(logprobs));
  }
  if (stop_) return emit_finish({.reason = "stop", .stop_reason = *stop_}, out);
  // The first chunk goes at once, later ones when they hold enough tokens.
  if (!has_emitted_ || num_tokens_ - num_emitted_tokens_ >= options_.stream_interval) emit(out);
}

void ChoiceStream::take(std::int32_t id, std::optional<TokenLogprobs> logprobs) {
  const bool is_end = ends_sequence(id);
  ++num_tokens_;
  if (parser_ && parser_->is_reasoning() && !is_end) ++num_reasoning_tokens_;
  if (options_.return_token_ids) next_.token_ids.push_back(id);
  if (!logprobs) logprobs = TokenLogprobs{.chosen = {.token_id = id}};
  if (is_end) {
    end_token_ = std::move(logprobs);
    return;
  }
  if (options_.logprobs) unreleased_.push_back(std::move(*logprobs));
  release(decoder_.push(id));
}

void ChoiceStream::release(text::DecodedPiece piece) {
  if (parser_) {
    text::CompletionDelta delta;
    parser_->push(piece.text, delta);
    collect(delta);
  } else {
    next_.text += piece.text;
  }
  num_text_bytes_ += piece.text.size();
  stop_ = std::move(piece.stop);
  if (stop_ && !options_.include_stop) drop_stopped_entries();
  for (std::int32_t i = 0; i < piece.num_tokens && !unreleased_.empty(); ++i) {
    add_entry(std::move(unreleased_.front()), false);
    unreleased_.pop_front();
  }
}

void ChoiceStream::collect(const text::CompletionDelta& delta) {
  next_.reasoning += delta.reasoning;
  next_.text += delta.content;
  for (const text::ToolCallDelta& call : delta.calls) {
    const bool goes_on = !next_.tool_calls.empty() && next_.tool_calls.back().index == call.index;
    goes_on ? void(next_.tool_calls.back().arguments += call.arguments) : next_.tool_calls.push_back(call);
  }
}

/// Of the tokens that are left when a stop string matches, those count whose text was released in full.
void ChoiceStream::drop_stopped_entries() {
  std::size_t end = num_entry_bytes_;
  std::size_t num_kept = 0;
  for (const TokenLogprobs& logprobs : unreleased_) {
    const std::int32_t id = logprobs.chosen.token_id;
    end += leaves_text(id) ? tokenizer_.token_bytes(id).size() : 0;
    if (end > num_text_bytes_) break;
    ++num_kept;
  }
  unreleased_.resize(num_kept);
}

void ChoiceStream::add_entry(TokenLogprobs logprobs, bool is_end) {
  const std::int32_t id = logprobs.chosen.token_id;
  TokenEntry entry{
      .chosen = logprobs.chosen, .top = std::move(logprobs.top), .is_end = is_end, .text_offset = text_offset_};
  if (!is_end && leaves_text(id)) {
    text_offset_ += count_characters(tokenizer_.token_bytes(id));
    num_entry_bytes_ += tokenizer_.token_bytes(id).size();
  }
  next_.entries.push_back(std::move(entry));
}

void ChoiceStream::finish(const FinishEvent& event, std::vector<ChoiceDelta>& out) {
  if (finished_) return;
  CHECK(started_);
  release(decoder_.finish());
  if (stop_) {  // it was complete, and waited for a longer one
    return emit_finish({.reason = "stop", .stop_reason = *stop_}, out);
  }
  // Tokens without text of their own are still answers to logprobs.
  for (TokenLogprobs& logprobs : unreleased_) add_entry(std::move(logprobs), false);
  unreleased_.clear();
  if (end_token_ && options_.logprobs) add_entry(std::move(*end_token_), true);
  ChoiceFinish finish{.reason = event.reason == FinishReason::kLength ? "length" : "stop"};
  if (event.stop_token_id) finish.stop_reason = *event.stop_token_id;
  emit_finish(std::move(finish), out);
}

void ChoiceStream::emit(std::vector<ChoiceDelta>& out) {
  const bool has_text = !next_.text.empty() || !next_.reasoning.empty() || !next_.tool_calls.empty();
  if (!has_text && next_.entries.empty() && next_.token_ids.empty()) return;
  next_.index = index_;
  out.push_back(std::exchange(next_, {}));
  has_emitted_ = true;
  num_emitted_tokens_ = num_tokens_;
}

void ChoiceStream::emit_finish(ChoiceFinish finish, std::vector<ChoiceDelta>& out) {
  if (parser_) {
    text::CompletionDelta delta;
    const Status status = parser_->finish(delta);
    collect(delta);
    if (!status) log(LogLevel::kDebug, "an answer leaves the model's format: {}", status.error().message);
    if (parser_->num_calls() > 0 && finish.reason == "stop" && !stop_) finish.reason = "tool_calls";
  }
  emit(out);
  finished_ = true;
  out.push_back(ChoiceDelta{.index = index_, .finish = std::move(finish)});
}

bool ChoiceStream::ends_sequence(std::int32_t id) const {
  return !options_.include_stop && num_tokens_ >= end_rule_.min_tokens &&
         std::ranges::find(end_rule_.token_ids, id) != end_rule_.token_ids.end();
}

bool ChoiceStream::leaves_text(std::int32_t id) const {
  return !options_.skip_special_tokens || !tokenizer_.is_special(id);
}

std::vector<TokenEntry> ChoiceStream::prompt_entries(const PromptPart& prompt) const {
  std::vector<TokenEntry> entries;
  entries.reserve(prompt.ids.size());
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
    TokenEntry entry{.chosen = {.token_id = prompt.ids[i]}, .has_logprob = false, .text_offset = offset};
    if (i > 0 && prompt.logprobs && i - 1 < prompt.logprobs->size()) {
      entry.chosen = (*prompt.logprobs)[i - 1].chosen;
      entry.top = (*prompt.logprobs)[i - 1].top;
      entry.has_logprob = true;
    }
    if (leaves_text(prompt.ids[i])) offset += count_characters(tokenizer_.token_bytes(prompt.ids[i]));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace thalweg::server
