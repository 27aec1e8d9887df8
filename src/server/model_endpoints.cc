// GET /v1/models and /v1/models/{id}.
#include <span>
#include <string>

#include "server/endpoint.h"
#include "server/json_writer.h"

namespace thalweg::server {
namespace {

void write_model(JsonWriter& json, const std::string& name, const Service& service) {
  const ModelDescription& description = service.model.description;
  json.raw(R"({"id":)").string(to_valid_utf8(name)).raw(R"(,"object":"model","created":)").integer(service.started_at);
  json.raw(R"(,"owned_by":"thalweg","root":)").string(to_valid_utf8(description.name));
  json.raw(R"(,"parent":null,"max_model_len":)").integer(description.max_model_len);
  json.raw(R"(,"permission":[],"meta":{"architecture":)").string(to_valid_utf8(description.architecture));
  json.raw(R"(,"n_vocab":)").integer(description.vocab_size);
  json.raw(R"(,"n_params":)").integer(description.num_parameters);
  json.raw(R"(,"size":)").integer(description.weight_bytes).raw("}}");
}

std::span<const std::string> served_names(const Service& service) {
  if (service.options.served_model_names.empty()) return {&service.model.description.name, 1};
  return service.options.served_model_names;
}

}  // namespace

void serve_models(EndpointCall call) {
  HttpResponse response;
  JsonWriter json(response.body);
  json.raw(R"({"object":"list","data":[)");
  for (const std::string& name : served_names(call.service)) {
    if (&name != served_names(call.service).data()) json.raw(",");
    write_model(json, name, call.service);
  }
  json.raw("]}");
  call.exchange->respond(std::move(response));
}

void serve_model(EndpointCall call) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string name = call.exchange->request().path.substr(kPrefix.size());
  if (const ApiResult<void> served = call.service.model.check_name(name); !served) {
    return call.exchange->respond(error_response(served.error()));
  }
  HttpResponse response;
  JsonWriter json(response.body);
  write_model(json, name, call.service);
  call.exchange->respond(std::move(response));
}

}  // namespace thalweg::server
