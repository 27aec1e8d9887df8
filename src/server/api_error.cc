#include "server/api_error.h"

#include <string_view>

#include "server/json_writer.h"

namespace thalweg::server {
namespace {

constexpr int kRetryAfterSeconds = 1;

std::string_view type_of(int status) {
  switch (status) {
    case 400:
    case 408:
    case 413:
    case 431:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 409:
      return "ConflictError";
    case 415:
      return "UnsupportedMediaTypeError";
    case 429:
      return "RateLimitError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    case 504:
      return "TimeoutError";
    default:
      return "InternalServerError";
  }
}

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kResourceExhausted:
      return 429;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kCancelled:
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kFailedPrecondition:
      return 409;
    case ErrorCode::kUnimplemented:
      return 501;
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

ApiError::ApiError(int status_code, std::string slug, std::string text, std::string field)
    : status(status_code),
      type(type_of(status_code)),
      code(std::move(slug)),
      message(std::move(text)),
      param(std::move(field)) {}

ApiError::ApiError(Error error)
    : ApiError(status_of(error.code), std::string(error_code_name(error.code)), std::move(error.message),
               std::move(error.param)) {
  if (error.code == ErrorCode::kInvalidArgument) code = "invalid_request";
}

std::string error_body(const ApiError& error) {
  std::string body;
  JsonWriter json(body);
  json.raw(R"({"error":{"message":)").string(to_valid_utf8(error.message)).raw(R"(,"type":)").string(error.type);
  json.raw(R"(,"param":)");
  error.param.empty() ? json.raw("null") : json.string(to_valid_utf8(error.param));
  json.raw(R"(,"code":)").string(error.code).raw(R"(,"status":)").integer(error.status).raw("}}");
  return body;
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = error_body(error);
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(kRetryAfterSeconds));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace thalweg::server
