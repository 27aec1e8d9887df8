// One client request while the engine works on it: its engine requests, its choices, its answer.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "server/answer.h"
#include "server/choice_stream.h"
#include "server/endpoint.h"
#include "server/prepare.h"
#include "thalweg/engine.h"

namespace thalweg::server {

/// Lives on one I/O thread. Stays in the thread's GenerationTable until the engine has sent all its finish
/// events, which may be after the answer is complete (stop strings) or the client is gone.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(PreparedRequest request, std::unique_ptr<AnswerWriter> writer, Service& service, double arrival_s);
  ~Generation();

  /// Hands everything to the engine. A refusal is the answer.
  void submit(GenerationTable& table);

  /// True when that was the last event of the prompt.
  bool on_event(std::size_t prompt, Event event);

  /// Sends what the events of one step have added.
  void flush();

  /// The client is gone.
  void abandon();

  /// Ends the answer with `error`.
  void fail(const ApiError& error);

 private:
  struct PromptState {
    RequestId id{};
    std::vector<ChoiceStream> choices;
    std::vector<double> last_token_s;  // per choice; 0: no token yet
    PromptPart part;
    std::vector<Event> early;     // of other sequences, before sequence 0 brought the prompt's logprobs
    bool has_started = false;     // sequence 0 has
    bool needs_logprobs = false;  // of the prompt
    std::int32_t num_open = 0;    // sequences without finish event
    std::int32_t num_cached_tokens = 0;
    FinishedRequest summary;
  };

  void process(PromptState& prompt, Event event);
  void on_start(PromptState& prompt, StartEvent event);
  void on_tokens(PromptState& prompt, TokenEvent event);
  void on_finish(PromptState& prompt, const FinishEvent& event);
  void write(std::vector<ChoiceDelta> deltas);
  void choice_is_finished();
  void cancel_all();
  Usage usage() const;

  PreparedRequest request_;
  std::unique_ptr<AnswerWriter> writer_;  // null once the answer is complete
  std::unique_ptr<AnswerWriter> retired_writer_;
  Service& service_;
  const double arrival_s_;
  std::vector<PromptState> prompts_;
  std::size_t num_submitted_ = 0;
  std::int32_t num_unfinished_choices_ = 0;
  bool has_token_ = false;
};

/// Which generation an engine's event belongs to. One per I/O thread.
class GenerationTable {
 public:
  explicit GenerationTable(std::shared_ptr<EventSink> sink) : sink_(std::move(sink)) {}

  const std::shared_ptr<EventSink>& sink() const { return sink_; }
  void add(RequestId id, std::shared_ptr<Generation> generation, std::size_t prompt);
  /// All events of one step.
  void dispatch(std::vector<Event> events);
  std::size_t size() const { return entries_.size(); }
  /// Ends all as if their clients had gone.
  void abandon_all();
  void fail_all(const ApiError& error);

 private:
  struct Entry {
    std::shared_ptr<Generation> generation;
    std::size_t prompt;
  };
  const std::shared_ptr<EventSink> sink_;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace thalweg::server
