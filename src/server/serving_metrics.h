// What /metrics tells: totals and histograms of requests, and the engine's own numbers at the time of asking.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "thalweg/engine.h"

namespace thalweg::server {

/// A request is one prompt with all its sequences. In the order of which one counts when sequences differ.
enum class RequestOutcome { kStop, kLength, kAborted, kFailed };

struct FinishedRequest {
  RequestOutcome outcome = RequestOutcome::kStop;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_output_tokens = 0;
  RequestTimings timings;
  double total_s = 0.0;  // from the request's arrival
};

/// All functions may be called from any thread. admitted = finished of all outcomes + in flight, always.
class ServingMetrics {
 public:
  ServingMetrics(const std::string& model_name, const ModelDescription& model);
  ~ServingMetrics();

  /// `route` is from the route table.
  void answered(std::string_view route, int status);
  void client_gone();

  void admitted(std::int64_t num_sequences, std::int64_t max_tokens);
  void first_token(double since_arrival_s);
  void next_token(double since_last_s);
  void finished(const FinishedRequest& request);

  /// Text format 0.0.4.
  std::string render(const EngineStats& stats);

 private:
  struct Series;
  const std::unique_ptr<Series> series_;
};

}  // namespace thalweg::server
