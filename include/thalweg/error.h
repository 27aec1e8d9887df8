// Expected failures cross every border of the program as values of this type.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace thalweg {

enum class ErrorCode {
  kInvalidArgument,     // the caller's input is wrong and will stay wrong
  kNotFound,            // no such file, model, route, tensor
  kResourceExhausted,   // a limit known at start is reached (queue, blocks, memory)
  kDeadlineExceeded,    // the caller's deadline passed
  kCancelled,           // the caller asked to stop
  kUnavailable,         // starting, draining, or the device is gone
  kFailedPrecondition,  // valid in another state of the system
  kUnimplemented,       // understood, not supported by this model or build
  kInternal,            // our mistake
};

/// Stable lower-case name, e.g. "invalid_argument".
std::string_view error_code_name(ErrorCode code);

/// `message` names the thing, the value found, the value needed and, if there is one, the way out.
/// `param` is the request field or option at fault, empty when there is none.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

/// `return fail(ErrorCode::kNotFound, "no file ...");` from any function that returns a Result.
[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, std::string message, std::string param = {}) {
  return std::unexpected(Error{code, std::move(message), std::move(param)});
}

}  // namespace thalweg
