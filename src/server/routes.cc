#include "server/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"

namespace thalweg::server {
namespace {

constexpr Route kRoutes[] = {
    {HttpMethod::kPost, "/v1/chat/completions", Access::kKey, true, serve_chat_completions},
    {HttpMethod::kPost, "/v1/completions", Access::kKey, true, serve_completions},
    {HttpMethod::kGet, "/v1/models", Access::kKey, false, serve_models},
    {HttpMethod::kGet, "/v1/models/*", Access::kKey, false, serve_model},
    {HttpMethod::kPost, "/tokenize", Access::kKey, false, serve_tokenize},
    {HttpMethod::kPost, "/detokenize", Access::kKey, false, serve_detokenize},
    {HttpMethod::kGet, "/health", Access::kOpen, false, serve_health},
    {HttpMethod::kGet, "/ping", Access::kOpen, false, serve_health},
    {HttpMethod::kPost, "/ping", Access::kOpen, false, serve_health},
    {HttpMethod::kGet, "/version", Access::kKey, false, serve_version},
    {HttpMethod::kGet, "/load", Access::kKey, false, serve_load},
    {HttpMethod::kGet, "/metrics", Access::kKey, false, serve_metrics},
    {HttpMethod::kPost, "/reset_prefix_cache", Access::kAdmin, false, serve_reset_prefix_cache},
};

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with("/*")) return route.path == path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(prefix) && path.size() > prefix.size();
}

/// The path as the table has it: without the proxy's prefix and a trailing slash, with /v1 where clients
/// leave it out.
std::string normalised(std::string_view path, const std::string& base_path) {
  if (!base_path.empty() && path.starts_with(base_path) &&
      (path.size() == base_path.size() || path[base_path.size()] == '/')) {
    path.remove_prefix(base_path.size());
  }
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  std::string with_version = "/v1" + std::string(path);
  const bool is_alias = std::ranges::any_of(kRoutes, [&](const Route& route) { return matches(route, with_version); });
  return is_alias ? with_version : std::string(path);
}

/// Takes as long for a wrong key as for a right one.
bool same_secret(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ (secret.empty() ? 'x' : secret[i % secret.size()]));
  }
  return difference == 0;
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const auto same_letter = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; };
  if (authorization.size() <= kScheme.size() ||
      !std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, same_letter)) {
    return {};
  }
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return authorization;
}

std::optional<ApiError> check_access(Access access, const ServerOptions& options, std::string_view authorization) {
  const std::string_view token = bearer_token(authorization);
  const bool is_admin = !options.admin_key.empty() && same_secret(token, options.admin_key);
  if (access == Access::kOpen || is_admin) return std::nullopt;
  if (access == Access::kKey) {
    if (options.api_keys.empty()) return std::nullopt;
    // No early end: the time must not tell which key was nearly right.
    bool is_known = false;
    for (const std::string& key : options.api_keys) is_known |= same_secret(token, key);
    if (is_known) return std::nullopt;
  }
  if (access == Access::kAdmin && options.admin_key.empty()) {
    return ApiError(403, "admin_key_required", "operator routes are off; start the server with an admin key");
  }
  return ApiError(401, "invalid_api_key",
                  token.empty() ? "no API key was sent; it belongs in the header Authorization: Bearer KEY"
                                : "the API key is wrong");
}

bool is_json(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find_first_of("; \t"));
  std::string lower(type);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower.empty() || lower == "application/json" || lower == "text/json" || lower.ends_with("+json");
}

std::string allowed_methods(std::span<const Route* const> candidates) {
  std::string allowed;
  for (const Route* route : candidates) {
    allowed += std::string(http_method_name(route->method)) + ", ";
    if (route->method == HttpMethod::kGet) allowed += "HEAD, ";
  }
  return allowed + "OPTIONS";
}

HttpResponse options_response(const std::string& allowed) {
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("Allow", allowed);
  response.headers.emplace_back("Access-Control-Allow-Methods", allowed);
  response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace

std::string_view http_method_name(HttpMethod method) {
  switch (method) {
    case HttpMethod::kGet:
      return "GET";
    case HttpMethod::kHead:
      return "HEAD";
    case HttpMethod::kPost:
      return "POST";
    case HttpMethod::kOptions:
      return "OPTIONS";
    case HttpMethod::kDelete:
      return "DELETE";
    case HttpMethod::kPut:
      return "PUT";
    case HttpMethod::kPatch:
      return "PATCH";
    case HttpMethod::kOther:
      return "OTHER";
  }
  return "OTHER";
}

std::span<const Route> routes() { return kRoutes; }

void dispatch(EndpointCall call) {
  const ServerOptions& options = call.service.options;
  HttpRequest& request = call.exchange->request();
  request.path = normalised(request.path, options.base_path);

  std::vector<const Route*> candidates;
  for (const Route& route : kRoutes) {
    if (matches(route, request.path)) candidates.push_back(&route);
  }
  call.exchange->set_route(candidates.empty() ? "other" : candidates.front()->path);
  const auto refuse_with = [&](const ApiError& error) { call.exchange->respond(error_response(error)); };
  if (request.method == HttpMethod::kOptions) {
    return call.exchange->respond(options_response(allowed_methods(candidates)));
  }
  const Access access = candidates.empty() ? Access::kKey : candidates.front()->access;
  if (const std::optional<ApiError> error = check_access(access, options, request.authorization)) {
    return refuse_with(*error);
  }
  if (candidates.empty()) {
    return refuse_with(ApiError(404, "route_not_found", fmt::format("there is no route {}", request.path)));
  }
  const HttpMethod method = request.method == HttpMethod::kHead ? HttpMethod::kGet : request.method;
  const auto found = std::ranges::find(candidates, method, &Route::method);
  if (found == candidates.end()) {
    const std::string allowed = allowed_methods(candidates);
    HttpResponse response = error_response(
        ApiError(405, "method_not_allowed",
                 fmt::format("{} takes {}, not {}", request.path, allowed, http_method_name(request.method))));
    response.headers.emplace_back("Allow", allowed);
    return call.exchange->respond(std::move(response));
  }
  if (method == HttpMethod::kPost && !request.body.empty() && !is_json(request.content_type)) {
    return refuse_with(ApiError(
        415, "unsupported_media_type",
        fmt::format("the content type is \"{}\", application/json is needed", request.content_type.substr(0, 64))));
  }
  if ((*found)->refused_while_draining && call.service.is_draining) {
    return refuse_with(ApiError(503, "unavailable", "the server is shutting down"));
  }
  (*found)->serve(std::move(call));
}

}  // namespace thalweg::server
