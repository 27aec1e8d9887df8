// One client's socket: HTTP/1.1 framing, deadlines, and a bounded way out.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "server/exchange.h"
#include "server/server_options.h"

namespace thalweg::server {

class Connection;

/// The I/O thread as connections see it.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual double now() const = 0;
  /// Bytes to read into; valid until the next call.
  virtual std::span<char> read_space() = 0;
  virtual std::string next_id() = 0;
  /// A request is complete; it may be answered before this returns.
  virtual void serve(std::shared_ptr<Connection> connection) = 0;
  virtual void exchange_begins() = 0;
  /// The answer is complete and sent, or the client is gone.
  virtual void exchange_ends() = 0;
  virtual void answered(std::string_view route, int status) = 0;
  virtual void client_gone() = 0;
  /// The connection may be forgotten.
  virtual void closed(const std::shared_ptr<Connection>& connection) = 0;
};

/// Owned by the event loop's handlers and its owner's list; everything happens on that one thread. Requests
/// are answered one after the other; bytes of later ones wait. While an answer is under way the socket is
/// still read, so that a client who leaves is noticed at once. A waiting connection holds no buffer: the
/// socket reports readiness, bytes are read into the owner's space.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  Connection(Socket socket, const ServerOptions& options, ConnectionOwner& owner);

  void begin();
  /// Deadlines and pings; called about once a second.
  void tick(double now);
  /// Ends it now; an answer under way is abandoned.
  void close();

  HttpRequest& request() override { return request_; }
  void set_route(std::string_view route) override { route_ = route; }
  void respond(HttpResponse response) override;
  void begin_stream() override;
  void write_stream(std::string_view bytes) override;
  void flush() override;
  void end_stream() override;
  void set_on_abandoned(std::move_only_function<void()> callback) override { on_abandoned_ = std::move(callback); }

 private:
  enum class State {
    kIdle,       // between requests
    kReading,    // a request has begun
    kAnswering,  // an endpoint has it
    kStreaming,  // an endpoint is writing its answer
    kLingering,  // answered with an error while the client may still be sending
    kClosed
  };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void wait_readable();
  void on_readable();
  void on_end_of_input();
  void wait_writable();
  void process_input();
  bool parse_some();
  void header_is_read();
  void begin_exchange();
  void finish_exchange(int status);
  void refuse(int status, std::string_view code, std::string message);
  void write_head(int status, std::string_view content_type,
                  const std::vector<std::pair<std::string, std::string>>& headers);
  void output_is_sent();
  bool has_unsent() const { return out_sent_ < out_.size(); }
  bool is_answering() const { return state_ == State::kAnswering || state_ == State::kStreaming; }

  Socket socket_;
  const ServerOptions& options_;
  ConnectionOwner& owner_;

  State state_ = State::kIdle;
  std::unique_ptr<Parser> parser_;  // of the request being read
  std::string in_;                  // read, not yet parsed
  HttpRequest request_;
  std::string_view route_ = "other";
  bool is_http_1_0_ = false;
  bool keep_alive_ = true;
  std::move_only_function<void()> on_abandoned_;

  std::string out_;  // written, not yet sent from out_sent_ on
  std::size_t out_sent_ = 0;
  bool is_waiting_readable_ = false;
  bool is_waiting_writable_ = false;
  bool is_processing_ = false;
  bool is_counted_ = false;  // exchange_begins() was called, exchange_ends() not yet
  bool input_has_ended_ = false;
  bool close_when_sent_ = false;
  bool linger_when_sent_ = false;

  double state_since_s_ = 0.0;
  double progress_s_ = 0.0;    // bytes were last accepted by the socket
  double last_event_s_ = 0.0;  // of the stream
};

}  // namespace thalweg::server
