// POST /tokenize and /detokenize: the text side alone.
#include <utility>

#include "server/answer_json.h"
#include "server/endpoint.h"
#include "server/json_writer.h"
#include "server/openai_request.h"

namespace thalweg::server {
namespace {

HttpResponse tokenized(const ServedModel& model, const std::string& body) {
  const ApiResult<TokenizeRequest> request = parse_tokenize_request(body, model.options, model.reads_parts());
  if (!request) return error_response(request.error());
  if (const ApiResult<void> named = model.check_name(request->model); !named) return error_response(named.error());
  if (request->conversation && model.chat_template == nullptr) {
    return error_response(ApiError(400, "invalid_request", "this model has no chat template", "messages"));
  }
  const Result<std::vector<std::int32_t>> ids =
      request->conversation
          ? model.chat_template->encode(*request->conversation, model.tokenizer)
          : model.tokenizer.encode(*request->prompt, {.add_special_tokens = request->add_special_tokens,
                                                      .parse_special = request->parse_special});
  if (!ids) return error_response(ids.error());

  HttpResponse response;
  JsonWriter json(response.body);
  json.raw(R"({"count":)").integer(static_cast<std::int64_t>(ids->size()));
  json.raw(R"(,"max_model_len":)").integer(model.description.max_model_len).raw(R"(,"tokens":)");
  write_ids(json, *ids);
  json.raw(R"(,"token_strs":)");
  if (request->return_token_strings) {
    json.raw("[");
    for (std::size_t i = 0; i < ids->size(); ++i) {
      if (i > 0) json.raw(",");
      json.string(to_valid_utf8(model.tokenizer.token_bytes((*ids)[i])));
    }
    json.raw("]");
  } else {
    json.raw("null");
  }
  json.raw("}");
  return response;
}

HttpResponse detokenized(const ServedModel& model, const std::string& body) {
  const ApiResult<DetokenizeRequest> request = parse_detokenize_request(body, model.options, model.vocab_size());
  if (!request) return error_response(request.error());
  if (const ApiResult<void> named = model.check_name(request->model); !named) return error_response(named.error());
  const Result<std::string> text = model.tokenizer.decode(request->tokens, false);
  if (!text) return error_response(text.error());
  HttpResponse response;
  JsonWriter json(response.body);
  // vLLM's name and llama-server's.
  json.raw(R"({"prompt":)").string(*text).raw(R"(,"content":)").string(*text).raw("}");
  return response;
}

void serve_text(EndpointCall call, HttpResponse (*answer)(const ServedModel&, const std::string&)) {
  std::string body = std::move(call.exchange->request().body);
  if (body.size() <= call.service.options.inline_body_bytes) {
    return call.exchange->respond(answer(call.service.model, body));
  }
  answer_on_text_thread(call,
                        [&model = call.service.model, answer, body = std::move(body)] { return answer(model, body); });
}

}  // namespace

void serve_tokenize(EndpointCall call) { serve_text(std::move(call), tokenized); }
void serve_detokenize(EndpointCall call) { serve_text(std::move(call), detokenized); }

}  // namespace thalweg::server
