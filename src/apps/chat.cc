#include <fmt/format.h>

#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "apps/commands.h"
#include "apps/line_editor.h"
#include "apps/loaded_model.h"
#include "apps/progress_bar.h"
#include "engine/event_queue.h"
#include "text/stream_decoder.h"

namespace thalweg::apps {
namespace {

/// Set by Ctrl-C while an answer streams; the answer ends, the conversation goes on.
volatile std::sig_atomic_t interrupted = 0;

class Conversation {
 public:
  Conversation(ServedModel& served, const ChatCommand& command) : served_(served), command_(command) { clear(); }

  void clear() {
    messages_.clear();
    if (!command_.system.empty()) add("system", command_.system);
  }

  /// Streams the answer to standard output and keeps both turns.
  Status ask(const std::string& question) {
    add("user", question);
    auto request = make_request();
    if (!request) {
      messages_.pop_back();
      return std::unexpected(request.error());
    }
    auto sink = std::make_shared<engine::EventQueue>();
    auto id = served_.engine->submit(std::move(*request), sink);
    if (!id) {
      messages_.pop_back();
      return std::unexpected(id.error());
    }
    interrupted = 0;
    auto answer = stream(*id, *sink);
    if (!answer) {
      messages_.pop_back();
      return std::unexpected(answer.error());
    }
    add("assistant", *answer);
    return {};
  }

 private:
  void add(std::string_view role, std::string_view content) {
    messages_.push_back(boost::json::object{{"role", role}, {"content", content}});
  }

  Result<GenerateRequest> make_request() const {
    text::Conversation conversation;
    conversation.messages_json = boost::json::serialize(messages_);
    auto ids = served_.text.chat_template->encode(conversation, *served_.text.tokenizer);
    if (!ids) return std::unexpected(ids.error());
    GenerateRequest request;
    request.prompt_ids = std::move(*ids);
    request.sampling = command_.sampling;
    const auto room = served_.engine->model().max_model_len - static_cast<std::int32_t>(request.prompt_ids.size());
    if (room < 1) {
      return fail(ErrorCode::kResourceExhausted,
                  fmt::format("the conversation has {} tokens, the context holds {}; /clear begins a new one",
                              request.prompt_ids.size(), served_.engine->model().max_model_len));
    }
    request.max_tokens = std::min(command_.max_tokens, room);
    return request;
  }

  Result<std::string> stream(RequestId id, engine::EventQueue& sink) {
    text::StreamDecoder decoder(*served_.text.tokenizer, {});
    std::string answer;
    const auto show = [&answer](const std::string& piece) {
      answer += piece;
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
    while (true) {
      for (const Event& event : sink.wait()) {
        if (const auto* tokens = std::get_if<TokenEvent>(&event)) {
          for (const std::int32_t token : tokens->token_ids) show(decoder.push(token).text);
        } else if (const auto* finish = std::get_if<FinishEvent>(&event)) {
          show(decoder.finish().text);
          fmt::print("\n");
          if (finish->error) return std::unexpected(*finish->error);
          return answer;
        }
        if (interrupted != 0) {
          interrupted = 0;
          served_.engine->cancel(id);
        }
      }
    }
  }

  ServedModel& served_;
  const ChatCommand& command_;
  boost::json::array messages_;
};

}  // namespace

int run(const ChatCommand& command) {
  ProgressBar bar("loading");
  auto served = load_served_model(command.engine, [&](double fraction) { bar.update(fraction); });
  if (!served) return report(served.error());
  if (served->text.chat_template == nullptr) {
    return report(
        {ErrorCode::kUnimplemented,
         fmt::format("{} has no chat template; `thalweg generate` completes text", served->engine->model().name),
         "model"});
  }
  fmt::print("{}  (/clear begins anew, /quit or Ctrl-D leaves)\n", served->engine->model().name);
  std::signal(SIGINT, [](int) { interrupted = 1; });
  LineEditor editor;
  Conversation conversation(*served, command);
  while (auto line = editor.read("> ")) {
    if (*line == "/quit") break;
    if (*line == "/clear") {
      conversation.clear();
      continue;
    }
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    if (auto status = conversation.ask(*line); !status) report(status.error());
  }
  served->engine->close(0.0);
  return 0;
}

}  // namespace thalweg::apps
