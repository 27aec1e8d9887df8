// For the server's tests: an engine that answers with given token ids, a byte tokenizer, a plain template.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "thalweg/engine.h"

namespace thalweg::server {

/// Ids 0..255 are bytes; then BOS, end of turn, and a few words.
class ByteTokenizer : public text::Tokenizer {
 public:
  static constexpr std::int32_t kBos = 256;
  static constexpr std::int32_t kEnd = 257;
  static constexpr std::int32_t kHello = 258;    // "Hello"
  static constexpr std::int32_t kStopMid = 259;  // "aSTOPb"
  static constexpr std::int32_t kVocabSize = 260;

  std::int32_t vocab_size() const override { return kVocabSize; }
  Result<std::vector<std::int32_t>> encode(std::string_view text, text::EncodeOptions options) const override {
    std::vector<std::int32_t> ids;
    if (options.add_special_tokens) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (!skip_special_tokens || !is_special(id)) text += token_bytes(id);
    }
    return text;
  }
  std::string_view token_bytes(std::int32_t id) const override { return pieces_.at(static_cast<std::size_t>(id)); }
  bool is_special(std::int32_t id) const override { return id == kBos || id == kEnd; }
  std::optional<std::int32_t> token_id(std::string_view /*token*/) const override { return std::nullopt; }
  std::optional<std::int32_t> bos_token_id() const override { return kBos; }
  std::optional<std::int32_t> eos_token_id() const override { return kEnd; }
  bool adds_bos() const override { return true; }

 private:
  const std::vector<std::string> pieces_ = [] {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    for (const char* word : {"<s>", "<|end|>", "Hello", "aSTOPb"}) pieces.emplace_back(word);
    return pieces;
  }();
};

/// The prompt is the conversation's own JSON, so that tests see what a template would see.
class PlainTemplate final : public text::ChatTemplate {
 public:
  Result<std::string> render(const text::Conversation& c) const override {
    if (c.messages_json.find("RAISE") != std::string::npos) {
      return fail(ErrorCode::kInvalidArgument, "the template says: no (line 7)");
    }
    return c.messages_json + "|" + c.tools_json + "|" + c.kwargs_json + "|" + (c.add_generation_prompt ? "1" : "0") +
           (c.continue_final_message ? "1" : "0");
  }
  Result<std::vector<std::int32_t>> encode(const text::Conversation& c,
                                           const text::Tokenizer& tokenizer) const override {
    const Result<std::string> prompt = render(c);
    if (!prompt) return std::unexpected(prompt.error());
    return tokenizer.encode(*prompt, {.add_special_tokens = false});
  }
};

/// One thread takes a step every `step_ms`: each running sequence gets the next token of its script.
class FakeEngine final : public Engine {
 public:
  /// The ids that a sequence of a request answers with; the engine adds the end token.
  using Script = std::function<std::vector<std::int32_t>(const GenerateRequest&, std::int32_t sequence)>;

  struct Options {
    std::int32_t max_model_len = 4096;
    std::int32_t max_queued = 1 << 20;
    std::int32_t tokens_per_step = 1;
    double step_ms = 0;
  };

  FakeEngine(Options options, Script script) : options_(options), script_(std::move(script)) {
    description_ = {.name = "fake",
                    .architecture = "script",
                    .vocab_size = ByteTokenizer::kVocabSize + 4,
                    .max_model_len = options.max_model_len,
                    .max_draft_tokens = 2,
                    .eos_token_ids = {ByteTokenizer::kEnd}};
    thread_ = std::thread([this] { loop(); });
  }
  ~FakeEngine() override { close(0); }

  const ModelDescription& model() const override { return description_; }

  Result<RequestId> submit(GenerateRequest request, std::shared_ptr<EventSink> sink) override {
    std::lock_guard lock(mutex_);
    if (next_error_) return std::unexpected(*std::exchange(next_error_, std::nullopt));
    if (static_cast<std::int32_t>(running_.size()) >= options_.max_queued) {
      return fail(ErrorCode::kResourceExhausted, "the queue is full: 1 requests wait, 1 may");
    }
    const auto id = RequestId{++last_id_};
    last_request_ = request;
    for (std::int32_t s = 0; s < request.num_sequences; ++s) {
      running_.push_back({.id = id, .index = s, .request = request, .sink = sink, .script = script_(request, s)});
    }
    wake_.notify_all();
    return id;
  }
  void cancel(RequestId id) override { cancel_where(id, -1); }
  void cancel_sequence(RequestId id, std::int32_t index) override { cancel_where(id, index); }

  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.num_running = static_cast<std::int32_t>(running_.size());
    return stats;
  }
  Status reset_prefix_cache() override {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return !holds_resets_ || closing_; });
    if (!running_.empty()) return fail(ErrorCode::kFailedPrecondition, "sequences are running");
    return {};
  }
  void close(double /*drain_s*/) override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // For tests.
  void hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    wake_.notify_all();
  }
  /// A reset waits as for the end of a long step.
  void hold_resets(bool held) {
    std::lock_guard lock(mutex_);
    holds_resets_ = held;
    wake_.notify_all();
  }
  void set_stats(const EngineStats& stats) {
    std::lock_guard lock(mutex_);
    stats_ = stats;
  }
  void fail_next(Error error) {
    std::lock_guard lock(mutex_);
    next_error_ = std::move(error);
  }
  /// Running sequences end with `error` in the next step.
  void break_all(Error error) {
    std::lock_guard lock(mutex_);
    break_ = std::move(error);
    wake_.notify_all();
  }
  std::int32_t num_running() const { return stats().num_running; }
  std::int32_t num_cancelled() const {
    std::lock_guard lock(mutex_);
    return num_cancelled_;
  }
  GenerateRequest last_request() const {
    std::lock_guard lock(mutex_);
    return last_request_;
  }

 private:
  struct Sequence {
    RequestId id{};
    std::int32_t index = 0;
    GenerateRequest request;
    std::shared_ptr<EventSink> sink;
    std::vector<std::int32_t> script;
    std::size_t next = 0;
    bool started = false;
    bool cancelled = false;
    bool done = false;
  };

  void cancel_where(RequestId id, std::int32_t index) {
    std::lock_guard lock(mutex_);
    for (Sequence& s : running_) {
      if (s.id == id && (index < 0 || s.index == index)) s.cancelled = true;
    }
    wake_.notify_all();
  }

  static TokenLogprobs logprobs_of(std::int32_t id, std::int32_t num_top) {
    TokenLogprobs logprobs{.chosen = {.token_id = id, .logprob = -0.5F, .rank = 1}};
    for (std::int32_t k = 0; k < num_top; ++k) {
      logprobs.top.push_back(
          {.token_id = k == 0 ? id : 'a' + k, .logprob = -0.5F - static_cast<float>(k), .rank = k + 1});
    }
    return logprobs;
  }

  void finish(Sequence& s, FinishReason reason, std::vector<Event>& events, std::optional<std::int32_t> stop_id = {}) {
    s.done = true;
    FinishEvent event{.request_id = s.id,
                      .sequence_index = s.index,
                      .reason = reason,
                      .stop_token_id = stop_id,
                      .num_prompt_tokens = static_cast<std::int32_t>(s.request.prompt_ids.size()),
                      .num_output_tokens = static_cast<std::int32_t>(s.next)};
    if (reason == FinishReason::kError) event.error = break_;
    events.emplace_back(std::move(event));
  }

  void start(Sequence& s, std::vector<Event>& events) {
    s.started = true;
    StartEvent event{.request_id = s.id, .sequence_index = s.index, .num_cached_tokens = 2};
    if (s.index == 0 && s.request.num_prompt_logprobs >= 0) {
      for (std::size_t i = 1; i < s.request.prompt_ids.size(); ++i) {
        event.prompt_logprobs.push_back(logprobs_of(s.request.prompt_ids[i], s.request.num_prompt_logprobs));
      }
    }
    events.emplace_back(std::move(event));
  }

  void step(Sequence& s, std::vector<Event>& events) {
    if (s.cancelled) {
      ++num_cancelled_;
      return finish(s, FinishReason::kCancelled, events);
    }
    if (break_) return finish(s, FinishReason::kError, events);
    if (!s.started) start(s, events);
    if (held_) return;
    TokenEvent tokens{.request_id = s.id, .sequence_index = s.index};
    for (std::int32_t k = 0; k < options_.tokens_per_step && !s.done; ++k) {
      if (static_cast<std::int32_t>(s.next) >= s.request.max_tokens) {
        if (!tokens.token_ids.empty()) events.emplace_back(std::exchange(tokens, {}));
        return finish(s, FinishReason::kLength, events);
      }
      const bool is_end = s.next >= s.script.size();
      const std::int32_t id = is_end ? ByteTokenizer::kEnd : s.script[s.next];
      ++s.next;
      tokens.token_ids.push_back(id);
      const std::int32_t num_logprobs = s.request.sampling.num_logprobs;
      if (num_logprobs >= 0) tokens.logprobs.push_back(logprobs_of(id, num_logprobs));
      const auto& stops = s.request.sampling.stop_token_ids;
      const bool is_stop_id = std::find(stops.begin(), stops.end(), id) != stops.end();
      if (is_stop_id || (is_end && !s.request.sampling.ignore_eos)) {
        events.emplace_back(std::exchange(tokens, {}));
        return finish(s, FinishReason::kStop, events, is_stop_id ? std::optional(id) : std::nullopt);
      }
    }
    events.emplace_back(std::move(tokens));
  }

  bool has_work() const {
    for (const Sequence& s : running_) {
      if (!s.started || s.cancelled || !held_ || break_) return true;
    }
    return false;
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return closing_ || has_work(); });
      if (closing_) {
        for (Sequence& s : running_) s.cancelled = true;
      }
      std::map<std::shared_ptr<EventSink>, std::vector<Event>> outgoing;
      for (Sequence& s : running_) step(s, outgoing[s.sink]);
      std::erase_if(running_, [](const Sequence& s) { return s.done; });
      ++stats_.num_steps;
      break_.reset();
      const bool ends = closing_;
      lock.unlock();
      for (auto& [sink, events] : outgoing) {
        if (!events.empty()) sink->deliver(std::move(events));
      }
      if (ends) return;
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(options_.step_ms * 1000)));
      lock.lock();
    }
  }

  const Options options_;
  const Script script_;
  ModelDescription description_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Sequence> running_;
  std::optional<Error> next_error_;
  std::optional<Error> break_;
  GenerateRequest last_request_;
  EngineStats stats_;
  std::uint64_t last_id_ = 0;
  std::int32_t num_cancelled_ = 0;
  bool held_ = false;
  bool holds_resets_ = false;
  bool closing_ = false;
  std::thread thread_;
};

/// Ids of `text`, one per byte.
inline std::vector<std::int32_t> byte_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace thalweg::server
