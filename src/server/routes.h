// The route table: who serves a path, with which method, for whom.
#pragma once

#include <span>
#include <string_view>

#include "server/endpoint.h"

namespace thalweg::server {

enum class Access { kOpen, kKey, kAdmin };

struct Route {
  HttpMethod method;
  std::string_view path;  // a trailing "/*" takes the rest, slashes included
  Access access;
  bool refused_while_draining;
  void (*serve)(EndpointCall);
};

std::span<const Route> routes();

/// Answers the exchange: by an endpoint, or with 401, 403, 404, 405, 415, 503.
void dispatch(EndpointCall call);

}  // namespace thalweg::server
