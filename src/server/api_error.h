// What a client is told when a request fails: one table from our error codes to HTTP and OpenAI's words.
#pragma once

#include <expected>
#include <string>

#include "server/exchange.h"
#include "thalweg/error.h"

namespace thalweg::server {

struct ApiError {
  int status = 500;
  std::string type;     // "BadRequestError", ...
  std::string code;     // slug, "model_not_found"
  std::string message;  // one sentence
  std::string param;    // field at fault; empty is null

  ApiError(int status_code, std::string slug, std::string text, std::string field = {});
  ApiError(Error error);  // NOLINT(google-explicit-constructor): the table is this conversion
};

template <typename T>
using ApiResult = std::expected<T, ApiError>;

/// 400 with `param`.
[[nodiscard]] inline std::unexpected<ApiError> refuse(std::string message, std::string param = {}) {
  return std::unexpected(ApiError(400, "invalid_request", std::move(message), std::move(param)));
}

/// `{"error":{...}}`
std::string error_body(const ApiError& error);

/// With Retry-After, WWW-Authenticate where the status asks for them.
HttpResponse error_response(const ApiError& error);

}  // namespace thalweg::server
