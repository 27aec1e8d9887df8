// What endpoints work with: the parts that all requests share, and the I/O thread that serves this one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "server/exchange.h"
#include "server/prepare.h"
#include "server/server_options.h"
#include "server/serving_metrics.h"
#include "server/text_pool.h"
#include "thalweg/engine.h"

namespace thalweg::server {

class GenerationTable;

/// One per server; every member may be used from any thread.
struct Service {
  const ServerOptions& options;
  Engine& engine;
  const ServedModel& model;
  const Clock& clock;
  ServingMetrics& metrics;
  TextPool& text_pool;
  std::int64_t started_at = 0;  // seconds since 1970
  std::atomic<bool> is_draining = false;
  std::atomic<std::int32_t> num_busy = 0;        // exchanges that are not yet answered and sent
  std::atomic<std::int32_t> num_generating = 0;  // of them, generations
  std::atomic<double> last_progress_s = 0.0;     // on `clock`: the engine stepped or had nothing to do
};

/// The event loop of one I/O thread.
class IoThread {
 public:
  virtual ~IoThread() = default;
  /// From any thread: run `work` on this one.
  virtual void post(std::move_only_function<void()> work) = 0;
  virtual GenerationTable& generations() = 0;
  /// 16 hexadecimal digits, unique in this process and, but for chance, among all.
  virtual std::string next_id() = 0;
};

struct EndpointCall {
  Service& service;
  IoThread& io;
  std::shared_ptr<Exchange> exchange;
};

/// For what takes long: `work` runs on a text thread and its answer is sent from this one. 429 when too much waits
/// there.
void answer_on_text_thread(const EndpointCall& call, std::move_only_function<HttpResponse()> work);

// One file per group.
void serve_chat_completions(EndpointCall call);
void serve_completions(EndpointCall call);

void serve_models(EndpointCall call);
void serve_model(EndpointCall call);

void serve_tokenize(EndpointCall call);
void serve_detokenize(EndpointCall call);

void serve_health(EndpointCall call);
void serve_version(EndpointCall call);
void serve_load(EndpointCall call);
void serve_metrics(EndpointCall call);
void serve_reset_prefix_cache(EndpointCall call);

}  // namespace thalweg::server
