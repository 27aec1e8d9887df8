// The HTTP server: OpenAI's routes in front of an engine.
#pragma once

#include <cstdint>
#include <memory>

#include "server/server_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "thalweg/engine.h"
#include "thalweg/error.h"

namespace thalweg::server {

/// What is passed by reference outlives the server; close the engine after run() has returned. listen(),
/// then run() from one thread; drain() and stop() from any.
class Server {
 public:
  /// `chat_template` may be null: chat requests are refused then.
  Server(ServerOptions options, Engine& engine, const text::Tokenizer& tokenizer,
         const text::ChatTemplate* chat_template);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Opens the port.
  Status listen();
  /// The port that was opened.
  std::uint16_t port() const;

  /// Serves on this and the other I/O threads until drain() or stop() is complete.
  void run();

  /// New requests are refused with 503 on the still open port; running ones finish, at most for
  /// `drain_timeout_s`; then run() returns.
  void drain();

  /// run() returns at once; running requests are cancelled.
  void stop();

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace thalweg::server
