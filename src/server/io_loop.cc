#include "server/io_loop.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <random>
#include <utility>

#include "server/routes.h"

namespace thalweg::server {
namespace {
namespace asio = boost::asio;

constexpr std::chrono::milliseconds kTick{500};
constexpr std::size_t kReadSpaceBytes = 64 << 10;

/// The engine's way to an I/O thread: one post per step, whatever the number of requests.
class LoopSink final : public EventSink {
 public:
  explicit LoopSink(std::shared_ptr<asio::io_context> io_context) : io_context_(std::move(io_context)) {}

  /// `table` lives on the loop's thread and as long as that thread runs handlers.
  void set_table(GenerationTable* table) { table_ = table; }

  void deliver(std::vector<Event> events) override {
    asio::post(*io_context_,
               [table = table_, events = std::move(events)]() mutable { table->dispatch(std::move(events)); });
  }

 private:
  const std::shared_ptr<asio::io_context> io_context_;
  GenerationTable* table_ = nullptr;
};

}  // namespace

IoLoop::IoLoop(Service& service)
    : service_(service),
      io_context_(std::make_shared<asio::io_context>(1)),
      tick_timer_(*io_context_),
      read_space_(kReadSpaceBytes) {
  auto sink = std::make_shared<LoopSink>(io_context_);
  generations_ = std::make_unique<GenerationTable>(sink);
  sink->set_table(generations_.get());
  std::random_device device;
  id_state_ = (static_cast<std::uint64_t>(device()) << 32) | device();
}

IoLoop::~IoLoop() { close_all(); }

void IoLoop::close_all() {
  generations_->abandon_all();
  for (const std::shared_ptr<Connection>& connection : std::exchange(connections_, {})) connection->close();
}

void IoLoop::run() {
  const auto guard = asio::make_work_guard(*io_context_);
  wait_for_tick();
  io_context_->run();
}

void IoLoop::stop() { io_context_->stop(); }

void IoLoop::take(Connection::Socket socket) {
  auto connection = std::make_shared<Connection>(std::move(socket), service_.options, *this);
  connections_.insert(connection);
  connection->begin();
}

void IoLoop::post(std::move_only_function<void()> work) {
  asio::post(*io_context_, [work = std::move(work)]() mutable { work(); });
}

std::string IoLoop::next_id() {
  // A counter through a mixing function that maps no two values to one.
  id_state_ += 0x9E3779B97F4A7C15;
  std::uint64_t mixed = id_state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return fmt::format("{:016x}", mixed ^ (mixed >> 31));
}

void IoLoop::serve(std::shared_ptr<Connection> connection) {
  dispatch({.service = service_, .io = *this, .exchange = std::move(connection)});
}

void IoLoop::closed(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
  if (on_closed_) on_closed_();
}

void IoLoop::wait_for_tick() {
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    // A copy, since tick() may close and so remove its connection.
    const std::vector<std::shared_ptr<Connection>> connections(connections_.begin(), connections_.end());
    for (const std::shared_ptr<Connection>& connection : connections) connection->tick(now());
    wait_for_tick();
  });
}

}  // namespace thalweg::server
