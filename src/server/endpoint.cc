#include "server/endpoint.h"

#include <utility>

namespace thalweg::server {

void answer_on_text_thread(const EndpointCall& call, std::move_only_function<HttpResponse()> work) {
  const bool is_taken = call.service.text_pool.try_run([call, work = std::move(work)]() mutable {
    call.io.post([call, response = work()]() mutable { call.exchange->respond(std::move(response)); });
  });
  if (!is_taken) {
    call.exchange->respond(error_response(ApiError(429, "resource_exhausted", "too many long texts wait already")));
  }
}

}  // namespace thalweg::server
