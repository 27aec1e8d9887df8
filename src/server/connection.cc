#include "server/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "server/api_error.h"

namespace thalweg::server {
namespace {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using Code = boost::system::error_code;

constexpr std::size_t kMaxPipelinedBytes = 64 << 10;  // read ahead of the request that is served
constexpr int kSendBufferBytes = 256 << 10;
constexpr std::size_t kKeptBufferBytes = 4 << 10;  // larger buffers are given back when empty
constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr double kLingerSeconds = 3;
constexpr std::string_view kPing = ": ping\n\n";

HttpMethod method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return HttpMethod::kGet;
    case http::verb::head:
      return HttpMethod::kHead;
    case http::verb::post:
      return HttpMethod::kPost;
    case http::verb::options:
      return HttpMethod::kOptions;
    case http::verb::delete_:
      return HttpMethod::kDelete;
    case http::verb::put:
      return HttpMethod::kPut;
    case http::verb::patch:
      return HttpMethod::kPatch;
    default:
      return HttpMethod::kOther;
  }
}

std::string_view reason_of(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

template <typename Text>
std::string_view view(const Text& text) {
  return {text.data(), text.size()};
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0;
    decoded.push_back(is_escape ? static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])) : text[i]);
    if (is_escape) i += 2;
  }
  return decoded;
}

/// The path of "/a?b" and of "http://host/a?b".
std::string_view path_of(std::string_view target) {
  if (const std::size_t scheme = target.find("://"); scheme != std::string_view::npos && !target.starts_with('/')) {
    const std::size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target.substr(0, target.find('?'));
}

}  // namespace

bool is_presentable_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7F; });
}

Connection::Connection(Socket socket, const ServerOptions& options, ConnectionOwner& owner)
    : socket_(std::move(socket)), options_(options), owner_(owner) {}

void Connection::begin() {
  Code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // Without this the kernel takes megabytes for a client that does not read.
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  state_since_s_ = owner_.now();
  wait_readable();
}

// --- reading

void Connection::wait_readable() {
  if (is_waiting_readable_ || input_has_ended_ || state_ == State::kClosed) return;
  // What waits is parsed when the answer before it has been sent.
  if (in_.size() >= options_.max_header_bytes + kMaxPipelinedBytes) return;
  is_waiting_readable_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const Code& error) {
    self->is_waiting_readable_ = false;
    if (!error) self->on_readable();
  });
}

void Connection::on_readable() {
  if (state_ == State::kClosed) return;
  const std::span<char> space = owner_.read_space();
  Code error;
  const std::size_t num_read = socket_.read_some(asio::buffer(space.data(), space.size()), error);
  if (error == asio::error::would_block) return wait_readable();
  if (error) return on_end_of_input();
  if (state_ != State::kLingering && !close_when_sent_) {
    in_.append(space.data(), num_read);
    process_input();
  }
  wait_readable();
}

/// A client that closes looks the same as one that only stops sending, so an answer under way is given up;
/// a client of the second kind is told.
void Connection::on_end_of_input() {
  input_has_ended_ = true;
  if (is_answering()) {
    const bool is_streaming = state_ == State::kStreaming;
    owner_.client_gone();
    if (auto abandoned = std::exchange(on_abandoned_, nullptr)) abandoned();
    keep_alive_ = false;
    const ApiError error(400, "client_closed_request", "the client closed its side before the answer was complete");
    if (is_streaming) {
      write_stream("data: " + error_body(error) + "\n\ndata: [DONE]\n\n");
      return end_stream();
    }
    return respond(error_response(error));
  }
  if (!has_unsent()) return close();
  close_when_sent_ = true;
}

void Connection::process_input() {
  if (is_processing_) return;  // an answer inside the loop below continues there
  is_processing_ = true;
  while ((state_ == State::kIdle || state_ == State::kReading) && !close_when_sent_ && !in_.empty() &&
         out_.size() - out_sent_ < options_.max_unsent_bytes) {
    if (!parse_some()) break;
  }
  is_processing_ = false;
  if (in_.empty() && in_.capacity() > kKeptBufferBytes) in_ = {};
}

/// One turn of the parser; false when it needs more bytes or has refused.
bool Connection::parse_some() {
  if (!parser_) {
    // Line ends between requests are legal and mean nothing.
    in_.erase(0, std::min(in_.find_first_not_of("\r\n"), in_.size()));
    if (in_.empty()) return false;
    parser_ = std::make_unique<Parser>();
    parser_->eager(true);
    parser_->header_limit(static_cast<std::uint32_t>(options_.max_header_bytes));
    parser_->body_limit(options_.max_body_bytes);
    state_ = State::kReading;
    state_since_s_ = owner_.now();
  }
  const bool had_header = parser_->is_header_done();
  Code error;
  const std::size_t num_parsed = parser_->put(asio::buffer(in_.data(), in_.size()), error);
  in_.erase(0, num_parsed);
  if (error == http::error::header_limit) {
    refuse(431, "header_too_large", fmt::format("the header is longer than {} bytes", options_.max_header_bytes));
    return false;
  }
  if (error == http::error::body_limit || error == http::error::buffer_overflow) {
    refuse(413, "body_too_large", fmt::format("the body is longer than {} bytes", options_.max_body_bytes));
    return false;
  }
  if (error && error != http::error::need_more) {
    refuse(400, "malformed_http", fmt::format("the request is no valid HTTP/1.1: {}", error.message()));
    return false;
  }
  if (!had_header && parser_->is_header_done()) header_is_read();
  if (state_ != State::kReading) return false;
  if (parser_->is_done()) {
    begin_exchange();
    return true;
  }
  return num_parsed > 0 && !in_.empty();
}

void Connection::header_is_read() {
  const auto& message = parser_->get();
  is_http_1_0_ = message.version() < 11;
  if (!is_http_1_0_ && message.count(http::field::host) != 1) {
    return refuse(400, "malformed_http", "a request needs exactly one Host header");
  }
  if (const auto expect = message.find(http::field::expect); expect != message.end()) {
    if (!boost::beast::iequals(expect->value(), "100-continue")) {
      return refuse(417, "expectation_failed", "the only expectation known is 100-continue");
    }
    if (!parser_->is_done()) {
      out_ += "HTTP/1.1 100 Continue\r\n\r\n";
      flush();
    }
  }
}

void Connection::begin_exchange() {
  auto message = parser_->release();
  parser_.reset();
  const std::string_view target = view(message.target());
  const std::size_t question = target.find('?');
  const std::string_view given_id = view(message["X-Request-Id"]);
  request_ = {.method = method_of(message.method()),
              .path = percent_decoded(path_of(target)),
              .query = std::string(question == std::string_view::npos ? "" : target.substr(question + 1)),
              .body = std::move(message.body()),
              .content_type = std::string(view(message[http::field::content_type])),
              .authorization = std::string(view(message[http::field::authorization])),
              .request_id = is_presentable_request_id(given_id) ? std::string(given_id) : owner_.next_id()};
  keep_alive_ = message.keep_alive();
  state_ = State::kAnswering;
  state_since_s_ = owner_.now();
  is_counted_ = true;
  owner_.exchange_begins();
  route_ = "other";
  owner_.serve(shared_from_this());
}

/// The request cannot be understood, so what follows it cannot either: answer and close.
void Connection::refuse(int status, std::string_view code, std::string message) {
  request_ = {.request_id = owner_.next_id()};
  route_ = "other";
  keep_alive_ = false;
  linger_when_sent_ = true;
  state_ = State::kAnswering;
  if (!is_counted_) {
    is_counted_ = true;
    owner_.exchange_begins();
  }
  in_.clear();
  parser_.reset();
  respond(error_response(ApiError(status, std::string(code), std::move(message))));
}

// --- answering

void Connection::write_head(int status, std::string_view content_type,
                            const std::vector<std::pair<std::string, std::string>>& headers) {
  auto to = std::back_inserter(out_);
  fmt::format_to(to, "HTTP/1.1 {} {}\r\n", status, reason_of(status));
  if (!content_type.empty()) fmt::format_to(to, "Content-Type: {}\r\n", content_type);
  for (const auto& [name, value] : headers) fmt::format_to(to, "{}: {}\r\n", name, value);
  fmt::format_to(to, "X-Request-Id: {}\r\n", request_.request_id);
  if (!options_.cors_origin.empty()) {
    fmt::format_to(to, "Access-Control-Allow-Origin: {}\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n",
                   options_.cors_origin);
  }
  if (!keep_alive_) {
    out_ += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    out_ += "Connection: keep-alive\r\n";
  }
}

void Connection::respond(HttpResponse response) {
  if (state_ != State::kAnswering) return;
  const bool has_content = response.status != 204;
  write_head(response.status, has_content ? response.content_type : "", response.headers);
  if (has_content) fmt::format_to(std::back_inserter(out_), "Content-Length: {}\r\n", response.body.size());
  out_ += "\r\n";
  if (request_.method != HttpMethod::kHead && has_content) out_ += response.body;
  finish_exchange(response.status);
}

void Connection::begin_stream() {
  if (state_ != State::kAnswering) return;
  state_ = State::kStreaming;
  last_event_s_ = owner_.now();
  // HTTP/1.0 has no chunks: the end of the connection is the end of the stream.
  if (is_http_1_0_) keep_alive_ = false;
  write_head(200, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  out_ += is_http_1_0_ ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n";
}

void Connection::write_stream(std::string_view bytes) {
  if (state_ != State::kStreaming) return;
  last_event_s_ = owner_.now();
  if (is_http_1_0_) {
    out_ += bytes;
  } else {
    fmt::format_to(std::back_inserter(out_), "{:x}\r\n{}\r\n", bytes.size(), bytes);
  }
}

void Connection::end_stream() {
  if (state_ != State::kStreaming) return;
  if (!is_http_1_0_) out_ += "0\r\n\r\n";
  finish_exchange(200);
}

void Connection::finish_exchange(int status) {
  on_abandoned_ = nullptr;
  owner_.answered(route_, status);
  request_.body = {};
  state_ = State::kIdle;
  state_since_s_ = owner_.now();
  close_when_sent_ = !keep_alive_ || input_has_ended_;
  flush();
  if (state_ != State::kIdle) return;
  process_input();
  wait_readable();
}

// --- writing

void Connection::flush() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();  // close() may drop the last other owner
  while (has_unsent() && !is_waiting_writable_) {
    Code error;
    const std::size_t num_sent =
        socket_.write_some(asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_), error);
    if (error == asio::error::would_block) break;
    if (error) return close();
    out_sent_ += num_sent;
    progress_s_ = owner_.now();
  }
  if (!has_unsent()) return output_is_sent();
  // A client that does not read its stream must not fill our memory, nor one that is always a little late.
  if (out_sent_ > kKeptBufferBytes) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_sent_));
    out_sent_ = 0;
  }
  if (state_ == State::kStreaming && out_.size() - out_sent_ > options_.max_unsent_bytes) return close();
  if (!is_waiting_writable_) wait_writable();
}

void Connection::wait_writable() {
  is_waiting_writable_ = true;
  progress_s_ = owner_.now();
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const Code& error) {
    self->is_waiting_writable_ = false;
    if (error) return;
    self->flush();
    self->process_input();
    self->wait_readable();
  });
}

void Connection::output_is_sent() {
  out_.clear();
  out_sent_ = 0;
  if (out_.capacity() > kKeptBufferBytes) out_ = {};
  if (is_answering()) return;
  if (std::exchange(is_counted_, false)) owner_.exchange_ends();
  if (!close_when_sent_) return;
  if (!linger_when_sent_ || input_has_ended_) return close();
  // Closing with unread bytes would reset the connection and could destroy the answer on its way.
  state_ = State::kLingering;
  state_since_s_ = owner_.now();
  Code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  const bool was_answering = is_answering();
  state_ = State::kClosed;
  if (was_answering) {
    owner_.client_gone();
    if (auto abandoned = std::exchange(on_abandoned_, nullptr)) abandoned();
  }
  if (std::exchange(is_counted_, false)) owner_.exchange_ends();
  Code ignored;
  socket_.close(ignored);
  out_ = {};
  in_ = {};
  parser_.reset();
  owner_.closed(self);
}

void Connection::tick(double now) {
  if (has_unsent() && now - progress_s_ > options_.write_timeout_s) return close();
  const double in_state_s = now - state_since_s_;
  switch (state_) {
    case State::kIdle:
      if (in_state_s > options_.idle_timeout_s && !has_unsent()) close();
      break;
    case State::kReading: {
      const bool has_header = parser_ && parser_->is_header_done();
      if (in_state_s > (has_header ? options_.body_timeout_s : options_.header_timeout_s)) {
        refuse(408, "request_timeout", fmt::format("the {} did not arrive in time", has_header ? "body" : "header"));
      }
      break;
    }
    case State::kStreaming:
      if (now - last_event_s_ > options_.ping_interval_s) {
        write_stream(kPing);
        flush();
      }
      break;
    case State::kLingering:
      if (in_state_s > kLingerSeconds) close();
      break;
    case State::kAnswering:
    case State::kClosed:
      break;
  }
}

}  // namespace thalweg::server
