#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/progress_bar.h"
#include "apps/version.h"
#include "base/log.h"
#include "server/server.h"

namespace thalweg::apps {
namespace {

/// Waits for SIGINT and SIGTERM on a thread of its own. While the model loads they end the process as they would any;
/// once there is a server the first drains it and a second one stops it at once. Made before all other threads so that
/// they inherit the blocked signals.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGUSR1);  // our own, to end the watch
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { watch(); });
  }
  ~SignalWatch() { end(); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// `server` must live until `end`.
  void serve(server::Server& server) { server_ = &server; }

  void end() {
    if (!thread_.joinable()) return;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  void watch() {
    bool is_draining = false;
    int received = 0;
    while (sigwait(&signals_, &received) == 0 && received != SIGUSR1) {
      server::Server* const server = server_;
      if (server == nullptr) {
        die_of(received);
      } else if (!is_draining) {
        log(LogLevel::kInfo, "draining; a second signal ends at once");
        server->drain();
        is_draining = true;
      } else {
        server->stop();
      }
    }
  }

  /// Nothing has been promised to anybody yet, and a load may be far from its next look at a flag.
  static void die_of(int signal_number) {
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal_number);
    std::signal(signal_number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    std::raise(signal_number);
  }

  sigset_t signals_{};
  std::atomic<server::Server*> server_ = nullptr;
  std::thread thread_;
};

server::ServerOptions server_options(const ServeCommand& command) {
  server::ServerOptions options;
  options.host = command.host;
  options.port = static_cast<std::uint16_t>(command.port);
  options.version = version();
  options.served_model_names = command.served_model_names;
  options.accept_any_model_name = command.any_model;
  options.base_path = command.base_path;
  options.refuse_unknown_fields = command.strict_fields;
  options.api_keys = command.api_keys;
  options.admin_key = command.admin_key;
  options.cors_origin = command.allowed_origin;
  options.num_io_threads = command.num_io_threads;
  options.max_body_bytes = static_cast<std::size_t>(command.max_body_bytes);
  options.drain_timeout_s = command.drain_s;
  return options;
}

/// The command line has checked the name.
LogLevel log_level_of(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

void announce(const std::string& host, std::uint16_t port, const std::string& model) {
  const std::string address = host.find(':') == std::string::npos ? host : '[' + host + ']';
  fmt::print(
      "serving {0} on http://{1}:{2}  try: curl http://{1}:{2}/v1/chat/completions -H 'Content-Type: "
      "application/json' -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is the capital of France? "
      "Answer in one sentence.\"}}], \"temperature\": 0}}'\n",
      model, address, port);
  std::fflush(stdout);
}

}  // namespace

int run(const ServeCommand& command) {
  set_log_level(log_level_of(command.log_level));
  SignalWatch signals;
  ProgressBar bar("loading");
  auto served = load_served_model(command.engine, [&](double fraction) { bar.update(fraction); });
  if (!served) return report(served.error());
  server::ServerOptions options = server_options(command);
  if (options.served_model_names.empty()) options.served_model_names = {served->engine->model().name};
  options.default_sampling = served->text.default_sampling;
  const std::string name = options.served_model_names.front();
  server::Server server(std::move(options), *served->engine, *served->text.tokenizer, served->text.chat_template.get());
  if (auto status = server.listen(); !status) return report(status.error());
  announce(command.host, server.port(), name);
  signals.serve(server);
  server.run();
  signals.end();
  served->engine->close(0.0);
  return 0;
}

}  // namespace thalweg::apps
