// What operators and load balancers ask: health, version, load, metrics, the prefix cache.
#include <fmt/format.h>

#include "server/endpoint.h"
#include "server/json_writer.h"

namespace thalweg::server {

void serve_health(EndpointCall call) {
  if (call.service.is_draining) {
    return call.exchange->respond(error_response(ApiError(503, "unavailable", "the server is shutting down")));
  }
  if (call.service.engine.stats().device_lost) {
    return call.exchange->respond(error_response(ApiError(503, "unavailable", "the engine has lost its device")));
  }
  const double stalled_s = call.service.clock.now() - call.service.last_progress_s;
  if (stalled_s > call.service.options.stall_timeout_s) {
    return call.exchange->respond(error_response(
        ApiError(503, "unavailable", fmt::format("the engine has made no step for {:.0f} s", stalled_s))));
  }
  call.exchange->respond({.content_type = ""});
}

void serve_version(EndpointCall call) {
  HttpResponse response;
  JsonWriter(response.body).raw(R"({"version":)").string(call.service.options.version).raw("}");
  call.exchange->respond(std::move(response));
}

void serve_load(EndpointCall call) {
  HttpResponse response;
  JsonWriter(response.body).raw(R"({"server_load":)").integer(call.service.num_generating).raw("}");
  call.exchange->respond(std::move(response));
}

void serve_metrics(EndpointCall call) {
  call.exchange->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = call.service.metrics.render(call.service.engine.stats())});
}

void serve_reset_prefix_cache(EndpointCall call) {
  // The engine answers between two steps. Waiting for that is not for a thread with connections.
  answer_on_text_thread(call, [&engine = call.service.engine]() -> HttpResponse {
    if (const Status reset = engine.reset_prefix_cache(); !reset) return error_response(reset.error());
    return {.body = R"({"success":true})"};
  });
}

}  // namespace thalweg::server
