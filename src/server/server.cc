#include "server/server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/endpoint.h"
#include "server/io_loop.h"
#include "server/prepare.h"

namespace thalweg::server {
namespace {
namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr std::chrono::milliseconds kWatch{100};
constexpr double kFarewellSeconds = 1.0;
constexpr std::int32_t kReservedDescriptors = 64;  // for files, the model, the listener

/// Every stream is a descriptor, so the soft limit goes up to the hard one.
std::int32_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<std::int32_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

/// Owns everything of a server. The listener and the watch run on the first loop's thread.
class Server::Listener {
 public:
  Listener(ServerOptions options, Engine& engine, const text::Tokenizer& tokenizer,
           const text::ChatTemplate* chat_template)
      : options_(std::move(options)),
        model_{
            .options = options_, .description = engine.model(), .tokenizer = tokenizer, .chat_template = chat_template},
        metrics_(model_.name(), engine.model()),
        service_{.options = options_,
                 .engine = engine,
                 .model = model_,
                 .clock = clock_,
                 .metrics = metrics_,
                 .text_pool = text_pool_,
                 .started_at = unix_seconds(),
                 .last_progress_s = clock_.now()},
        text_pool_(options_.num_text_threads, options_.max_queued_texts) {
    for (std::int32_t i = 0; i < std::max(options_.num_io_threads, 1); ++i) {
      loops_.push_back(std::make_unique<IoLoop>(service_));
      loops_.back()->set_on_closed([this] { connection_is_closed(); });
    }
    acceptor_.emplace(loops_.front()->io_context());
    watch_timer_.emplace(loops_.front()->io_context());
    retry_timer_.emplace(loops_.front()->io_context());
  }

  Status listen() {
    const std::int32_t num_descriptors = raise_descriptor_limit();
    max_connections_ = std::max(num_descriptors - kReservedDescriptors, 1);
    if (options_.max_connections > 0) max_connections_ = std::min(max_connections_, options_.max_connections);

    Code error;
    tcp::resolver resolver(loops_.front()->io_context());
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the host \"{}\" cannot be resolved: {}", options_.host, error.message()), "host");
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("cannot listen on {}:{}: {}; choose another host or port", options_.host, options_.port,
                              error.message()),
                  "port");
    }
    port_ = acceptor_->local_endpoint(error).port();
    return {};
  }

  std::uint16_t port() const { return port_; }

  void run() {
    CHECK(acceptor_->is_open());
    accept_next();
    watch();
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < loops_.size(); ++i) threads.emplace_back([loop = loops_[i].get()] { loop->run(); });
    loops_.front()->run();
    stop();
    threads.clear();
    Code ignored;
    acceptor_->close(ignored);
    for (const auto& loop : loops_) loop->close_all();
  }

  void drain() { service_.is_draining = true; }

  void stop() {
    for (const auto& loop : loops_) loop->stop();
  }

 private:
  void accept_next() {
    if (is_accepting_) return;
    if (num_connections_ >= max_connections_) return;  // the backlog holds them until one goes
    is_accepting_ = true;
    IoLoop& loop = *loops_[next_loop_++ % loops_.size()];
    acceptor_->async_accept(loop.io_context(), [this, &loop](const Code& error, tcp::socket socket) {
      is_accepting_ = false;
      if (!error) {
        ++num_connections_;
        loop.post([&loop, socket = std::move(socket)]() mutable { loop.take(std::move(socket)); });
        return accept_next();
      }
      if (error == asio::error::operation_aborted) return;
      // Descriptors or memory are short: pause, so that the ones in use can be given back.
      retry_timer_->expires_after(kWatch);
      retry_timer_->async_wait([this](const Code& stopped) {
        if (!stopped) accept_next();
      });
    });
  }

  void connection_is_closed() {
    if (num_connections_-- == max_connections_) loops_.front()->post([this] { accept_next(); });
  }

  /// Watches over the engine's progress, and over the end of draining.
  void watch() {
    const double now = clock_.now();
    const EngineStats stats = service_.engine.stats();
    if (stats.num_steps != last_num_steps_ || stats.num_running + stats.num_waiting == 0) {
      last_num_steps_ = stats.num_steps;
      service_.last_progress_s = now;
    }
    if (service_.is_draining && is_drained(now)) return stop();
    watch_timer_->expires_after(kWatch);
    watch_timer_->async_wait([this](const Code& error) {
      if (!error) watch();
    });
  }

  /// At the deadline what still runs is told so; a moment later it is over in any case.
  bool is_drained(double now) {
    if (drain_ends_s_ == 0.0) drain_ends_s_ = now + options_.drain_timeout_s;
    if (service_.num_busy == 0 || now >= drain_ends_s_ + kFarewellSeconds) return true;
    if (now < drain_ends_s_ || std::exchange(is_ending_, true)) return false;
    log(LogLevel::kWarning, "{} requests still run after {} s of draining and are ended", service_.num_busy.load(),
        options_.drain_timeout_s);
    for (const auto& loop : loops_) {
      loop->post([loop = loop.get()] {
        loop->generations().fail_all(ApiError(503, "unavailable", "the server is shutting down"));
      });
    }
    return false;
  }

  const ServerOptions options_;
  const SteadyClock clock_;
  const ServedModel model_;
  ServingMetrics metrics_;
  Service service_;
  std::vector<std::unique_ptr<IoLoop>> loops_;
  TextPool text_pool_;  // after the loops: its threads post to them until they are joined

  std::optional<tcp::acceptor> acceptor_;
  std::optional<asio::steady_timer> watch_timer_;
  std::optional<asio::steady_timer> retry_timer_;
  std::uint16_t port_ = 0;
  std::size_t next_loop_ = 0;
  bool is_accepting_ = false;
  std::int32_t max_connections_ = 0;
  std::atomic<std::int32_t> num_connections_ = 0;
  std::uint64_t last_num_steps_ = 0;
  double drain_ends_s_ = 0.0;
  bool is_ending_ = false;
};

Server::Server(ServerOptions options, Engine& engine, const text::Tokenizer& tokenizer,
               const text::ChatTemplate* chat_template)
    : listener_(std::make_unique<Listener>(std::move(options), engine, tokenizer, chat_template)) {}

Server::~Server() = default;

Status Server::listen() { return listener_->listen(); }
std::uint16_t Server::port() const { return listener_->port(); }
void Server::run() { listener_->run(); }
void Server::drain() { listener_->drain(); }
void Server::stop() { listener_->stop(); }

}  // namespace thalweg::server
