// An I/O thread: the event loop with its connections and generations.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "server/connection.h"
#include "server/endpoint.h"
#include "server/generation.h"

namespace thalweg::server {

/// Constructed and destroyed while no thread is in run(); post() and stop() may be called from any thread,
/// everything else happens on the thread that runs it.
class IoLoop final : public IoThread, public ConnectionOwner {
 public:
  explicit IoLoop(Service& service);
  ~IoLoop() override;

  /// Until stop().
  void run();
  void stop();
  /// Ends all connections and their requests; after run() has returned.
  void close_all();

  boost::asio::io_context& io_context() { return *io_context_; }
  /// Takes over a connected socket of this loop's context.
  void take(Connection::Socket socket);
  std::size_t num_connections() const { return connections_.size(); }

  void post(std::move_only_function<void()> work) override;
  GenerationTable& generations() override { return *generations_; }

  double now() const override { return service_.clock.now(); }
  std::span<char> read_space() override { return read_space_; }
  std::string next_id() override;
  void serve(std::shared_ptr<Connection> connection) override;
  void exchange_begins() override { ++service_.num_busy; }
  void exchange_ends() override { --service_.num_busy; }
  void answered(std::string_view route, int status) override { service_.metrics.answered(route, status); }
  void client_gone() override { service_.metrics.client_gone(); }
  void closed(const std::shared_ptr<Connection>& connection) override;

  /// Called when a connection has gone; the listener may be waiting for room.
  void set_on_closed(std::function<void()> callback) { on_closed_ = std::move(callback); }

 private:
  void wait_for_tick();

  Service& service_;
  // Shared with the sink, which the engine may hold longer than this loop lives.
  const std::shared_ptr<boost::asio::io_context> io_context_;
  std::unique_ptr<GenerationTable> generations_;
  boost::asio::steady_timer tick_timer_;
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::vector<char> read_space_;
  std::function<void()> on_closed_;
  std::uint64_t id_state_;
};

}  // namespace thalweg::server
