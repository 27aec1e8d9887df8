#include "apps/offline_batch.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "engine/event_queue.h"
#include "server/choice_stream.h"

namespace thalweg::apps {
namespace {

/// One line on its way.
struct Line {
  server::PreparedRequest request;
  std::vector<server::ChoiceStream> choices;  // prompt-major
  std::vector<bool> started;
  BatchAnswer answer;
  std::size_t num_open = 0;
};

/// Which choice an engine request's sequence is.
struct Owner {
  Line* line;
  std::size_t first_choice;
  server::PromptPart* prompt;
  std::size_t num_open;  // sequences without finish event
};

class Batch {
 public:
  Batch(Engine& engine, const server::ServedModel& model) : engine_(engine), model_(model) {}

  std::unique_ptr<Line> begin(const BatchBody& body) {
    auto line = std::make_unique<Line>();
    const std::atomic<bool> never_cancelled = false;
    auto prepared = server::prepare(body.route, body.json, model_, never_cancelled);
    if (!prepared) {
      line->answer.error = prepared.error().message;
      return line;
    }
    line->request = std::move(*prepared);
    line->request.answer.return_token_ids = true;
    for (server::PreparedPrompt& prompt : line->request.prompts) {
      submit(*line, prompt);
      if (!line->answer.error.empty()) break;
    }
    return line;
  }

  /// Until this line has no open sequence.
  void finish(Line& line) {
    while (line.num_open > 0) {
      for (Event& event : sink_->wait()) dispatch(event);
    }
  }

 private:
  void submit(Line& line, server::PreparedPrompt& prompt) {
    const auto num_sequences = static_cast<std::size_t>(prompt.generate.num_sequences);
    const std::size_t first_choice = line.choices.size();
    for (std::size_t i = 0; i < num_sequences; ++i) {
      line.choices.emplace_back(static_cast<std::int32_t>(first_choice + i), model_.tokenizer, line.request.answer,
                                line.request.end_rule);
      line.started.push_back(false);
      line.answer.choices.emplace_back();
    }
    line.answer.usage.num_prompt_tokens += static_cast<std::int64_t>(prompt.generate.prompt_ids.size());
    auto id = engine_.submit(prompt.generate, sink_);
    while (!id && id.error().code == ErrorCode::kResourceExhausted && !owners_.empty()) {  // until the queue has room
      for (Event& event : sink_->wait()) dispatch(event);
      id = engine_.submit(prompt.generate, sink_);
    }
    if (!id) {
      line.answer.error = id.error().message;
      return;
    }
    owners_[static_cast<std::uint64_t>(*id)] = {&line, first_choice, &prompt.part, num_sequences};
    line.num_open += num_sequences;
  }

  void dispatch(Event& event) {
    std::visit([this](auto& one) { on_event(one); }, event);
  }

  template <typename E>
  void on_event(E& event) {
    const auto found = owners_.find(static_cast<std::uint64_t>(event.request_id));
    if (found == owners_.end()) return;
    const Owner& owner = found->second;
    const bool is_last = std::is_same_v<E, FinishEvent> && --found->second.num_open == 0;
    const std::size_t index = owner.first_choice + static_cast<std::size_t>(event.sequence_index);
    apply(*owner.line, index, owner, event);
    if (is_last) owners_.erase(found);
  }

  void apply(Line& line, std::size_t index, const Owner& owner, StartEvent& event) {
    if (event.sequence_index == 0) {  // the first to start: its siblings wait for what it computes
      line.answer.usage.num_cached_tokens += event.num_cached_tokens;
      owner.prompt->logprobs = std::move(event.prompt_logprobs);
    }
    start(line, index, owner);
  }

  void apply(Line& line, std::size_t index, const Owner& owner, TokenEvent& event) {
    start(line, index, owner);
    if (line.choices[index].finished()) return;
    const RequestId id = event.request_id;
    const std::int32_t sequence_index = event.sequence_index;
    line.choices[index].push(std::move(event), deltas_);
    collect(line, index);
    if (line.choices[index].finished()) engine_.cancel_sequence(id, sequence_index);
  }

  void apply(Line& line, std::size_t index, const Owner& owner, FinishEvent& event) {
    start(line, index, owner);
    if (!line.choices[index].finished()) {
      line.choices[index].finish(event, deltas_);
      collect(line, index);
    }
    if (event.error) {
      line.answer.choices[index].finish_reason = "error";
      line.answer.error = event.error->message;
    }
    line.answer.usage.num_output_tokens += line.choices[index].num_tokens();
    --line.num_open;
  }

  void start(Line& line, std::size_t index, const Owner& owner) {
    if (line.started[index]) return;
    line.started[index] = true;
    line.choices[index].start(*owner.prompt, deltas_);
    collect(line, index);
  }

  void collect(Line& line, std::size_t index) {
    BatchChoice& choice = line.answer.choices[index];
    for (server::ChoiceDelta& delta : deltas_) {
      choice.text += delta.text;
      choice.token_ids.insert(choice.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      std::ranges::move(delta.entries, std::back_inserter(choice.entries));
      std::ranges::move(delta.prompt_entries, std::back_inserter(choice.prompt_entries));
      if (delta.finish) choice.finish_reason = delta.finish->reason;
    }
    deltas_.clear();
  }

  Engine& engine_;
  const server::ServedModel& model_;
  std::shared_ptr<engine::EventQueue> sink_ = std::make_shared<engine::EventQueue>();
  std::map<std::uint64_t, Owner> owners_;
  std::vector<server::ChoiceDelta> deltas_;
};

}  // namespace

void run_batch(Engine& engine, const server::ServedModel& model, const std::vector<BatchBody>& bodies,
               std::size_t window, const std::function<void(std::size_t line, const BatchAnswer& answer)>& write) {
  Batch batch(engine, model);
  std::vector<std::unique_ptr<Line>> lines(bodies.size());
  std::size_t num_begun = 0;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    for (; num_begun < std::min(bodies.size(), i + window); ++num_begun)
      lines[num_begun] = batch.begin(bodies[num_begun]);
    batch.finish(*lines[i]);
    write(i, lines[i]->answer);
    lines[i].reset();
  }
}

}  // namespace thalweg::apps
