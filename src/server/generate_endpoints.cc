// POST /v1/chat/completions and /v1/completions.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "server/answer.h"
#include "server/endpoint.h"
#include "server/generation.h"
#include "server/prepare.h"

namespace thalweg::server {
namespace {

AnswerHead answer_head(GenerateRoute route, const AnswerOptions& answer, const EndpointCall& call) {
  const Service& service = call.service;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const std::string_view prefix = route == GenerateRoute::kChat ? "chatcmpl-" : "cmpl-";
  return {.id = std::string(prefix) + call.io.next_id() + call.io.next_id(),
          .model = service.model.name(),
          .created = std::chrono::duration_cast<std::chrono::seconds>(since_1970).count(),
          .options = answer,
          .usage_null_in_chunks = service.options.usage_null_in_chunks};
}

void begin_generation(GenerateRoute route, const EndpointCall& call, ApiResult<PreparedRequest> prepared,
                      double arrival_s) {
  if (!prepared) return call.exchange->respond(error_response(prepared.error()));
  if (is_presentable_request_id(prepared->request_id)) call.exchange->request().request_id = prepared->request_id;
  AnswerHead head = answer_head(route, prepared->answer, call);
  auto writer = prepared->answer.stream
                    ? make_stream_writer(std::move(head), call.service.model.tokenizer, call.exchange)
                    : make_body_writer(std::move(head), call.service.model.tokenizer, call.exchange);
  auto generation = std::make_shared<Generation>(std::move(*prepared), std::move(writer), call.service, arrival_s);
  call.exchange->set_on_abandoned([generation] { generation->abandon(); });
  generation->submit(call.io.generations());
}

/// Short bodies are prepared here and now, long ones on a text thread, so that streams never wait for them.
void serve_generation(GenerateRoute route, EndpointCall call) {
  const double arrival_s = call.service.clock.now();
  std::string body = std::move(call.exchange->request().body);
  auto is_cancelled = std::make_shared<std::atomic<bool>>(false);
  if (body.size() <= call.service.options.inline_body_bytes) {
    return begin_generation(route, call, prepare(route, body, call.service.model, *is_cancelled), arrival_s);
  }
  call.exchange->set_on_abandoned([is_cancelled] { *is_cancelled = true; });
  const bool is_taken = call.service.text_pool.try_run([route, call, is_cancelled, arrival_s, body = std::move(body)] {
    auto prepared = prepare(route, body, call.service.model, *is_cancelled);
    call.io.post([route, call, is_cancelled, arrival_s, prepared = std::move(prepared)]() mutable {
      if (!*is_cancelled) begin_generation(route, call, std::move(prepared), arrival_s);
    });
  });
  if (!is_taken) {
    call.exchange->respond(error_response(
        ApiError(429, "resource_exhausted",
                 fmt::format("{} long prompts wait to be tokenised already", call.service.options.max_queued_texts))));
  }
}

}  // namespace

void serve_chat_completions(EndpointCall call) { serve_generation(GenerateRoute::kChat, std::move(call)); }
void serve_completions(EndpointCall call) { serve_generation(GenerateRoute::kCompletion, std::move(call)); }

}  // namespace thalweg::server
