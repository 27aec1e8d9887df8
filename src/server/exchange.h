// One HTTP request and its answer, as endpoints see them. Sockets and framing stay in connection.cc.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace thalweg::server {

enum class HttpMethod { kGet, kHead, kPost, kOptions, kDelete, kPut, kPatch, kOther };

std::string_view http_method_name(HttpMethod method);

struct HttpRequest {
  HttpMethod method = HttpMethod::kGet;
  std::string path;   // percent-decoded, without query
  std::string query;  // as sent
  std::string body;
  std::string content_type;
  std::string authorization;
  std::string request_id;  // the client's X-Request-Id if it is presentable, else one of our own
};

/// Fit to be echoed in a header: printable ASCII without spaces, not too long.
bool is_presentable_request_id(std::string_view id);

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

/// Lives on one I/O thread; all functions are called there. Exactly one of respond() and
/// begin_stream() .. end_stream() is called. After the client has gone all writes are ignored.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual HttpRequest& request() = 0;
  /// What metrics call it; text that lives as long as the program.
  virtual void set_route(std::string_view route) = 0;
  virtual void respond(HttpResponse response) = 0;

  /// Status 200 and text/event-stream. Nothing is sent before flush().
  virtual void begin_stream() = 0;
  virtual void write_stream(std::string_view bytes) = 0;
  virtual void flush() = 0;
  virtual void end_stream() = 0;

  /// Called once, from the event loop, if the client goes (or stops reading) before the answer is complete.
  virtual void set_on_abandoned(std::move_only_function<void()> callback) = 0;
};

}  // namespace thalweg::server
