#include "server/serving_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "server/json_writer.h"
#include "server/metrics_registry.h"
#include "server/routes.h"

namespace thalweg::server {
namespace {

constexpr std::array<std::string_view, 4> kOutcomes = {"stop", "length", "abort", "error"};
// What waits has no place yet, or is held until its request's prompt is computed.
constexpr std::array<std::string_view, 2> kWaitReasons = {"capacity", "deferred"};
constexpr std::array<std::string_view, 5> kStatusClasses = {"1xx", "2xx", "3xx", "4xx", "5xx"};

const std::vector<double>& seconds() {
  static const std::vector<double> buckets = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                              0.15,  0.2,    0.3,   0.4,  0.5,  0.75, 1,    2.5,  5,
                                              7.5,   10,     20,    40,   80,   160,  640};
  return buckets;
}

const std::vector<double>& token_counts() {
  static const std::vector<double> buckets = {1,   2,    5,    10,   20,    50,    100,   200,
                                              500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
  return buckets;
}

/// A label's value as the text format wants it.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char letter : value) {
    if (letter == '\\' || letter == '"') text += '\\';
    letter == '\n' ? text += "\\n" : text += letter;
  }
  return text;
}

/// The engine counts its steps itself, so this family is written from the snapshot and not recorded.
void write_step_tokens(std::string& out, std::string_view name, const MetricLabels& labels, const EngineStats& stats) {
  std::string all_labels;
  for (const auto& [label, value] : labels) all_labels += fmt::format("{}=\"{}\",", label, escaped(value));
  out += fmt::format("# HELP {0} Tokens computed in a step.\n# TYPE {0} histogram\n", name);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < stats.num_steps_by_tokens.size(); ++i) {
    count += stats.num_steps_by_tokens[i];
    const std::string bound = i < kStepTokenBounds.size() ? fmt::format("{}", kStepTokenBounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", name, all_labels, bound, count);
  }
  all_labels.pop_back();
  out += fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, all_labels, stats.num_computed_tokens, count);
}

const std::vector<double>& sequence_counts() {
  static const std::vector<double> buckets = {1, 2, 5, 10, 20, 50, 100};
  return buckets;
}

}  // namespace

/// Every metric exists from the start, so recording takes no lock and a dashboard sees zeros.
struct ServingMetrics::Series {
  /// A series under our name and under the names that dashboards for vLLM ask for.
  template <typename Metric>
  struct Named {
    std::vector<Metric> metrics;

    void inc(double amount = 1.0) const {
      for (const Metric& metric : metrics) metric.inc(amount);
    }
    void set(double value) const {
      for (const Metric& metric : metrics) metric.set(value);
    }
    void observe(double value) const {
      for (const Metric& metric : metrics) metric.observe(value);
    }
  };

  explicit Series(const std::string& model_name) : labels{{"model_name", to_valid_utf8(model_name)}, {"engine", "0"}} {
    for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
      finished[i].metrics = {registry.add_counter("thalweg_requests_finished_total", "Requests that ended, by reason.",
                                                  with("reason", kOutcomes[i])),
                             registry.add_counter("vllm:request_success_total", "Requests that ended, by reason.",
                                                  with("finished_reason", kOutcomes[i]))};
    }
    for (std::size_t i = 0; i < kWaitReasons.size(); ++i) {
      waiting_by_reason[i].metrics = {
          registry.add_gauge("thalweg_sequences_waiting_by_reason", "Sequences waiting to be scheduled, by reason.",
                             with("reason", kWaitReasons[i])),
          registry.add_gauge("vllm:num_requests_waiting_by_reason", "Sequences waiting to be scheduled, by reason.",
                             with("reason", kWaitReasons[i]))};
    }
    for (const Route& route : routes()) add_route(route.path);
    add_route("other");
  }

  Named<Counter> counter(std::string_view name, std::string_view help, std::vector<std::string_view> aliases = {}) {
    Named<Counter> named{{registry.add_counter(name, help, labels)}};
    for (const std::string_view alias : aliases) named.metrics.push_back(registry.add_counter(alias, help, labels));
    return named;
  }
  Named<Gauge> gauge(std::string_view name, std::string_view help, std::vector<std::string_view> aliases = {}) {
    Named<Gauge> named{{registry.add_gauge(name, help, labels)}};
    for (const std::string_view alias : aliases) named.metrics.push_back(registry.add_gauge(alias, help, labels));
    return named;
  }
  Named<Histogram> histogram(std::string_view name, std::string_view help, const std::vector<double>& buckets,
                             std::vector<std::string_view> aliases) {
    Named<Histogram> named{{registry.add_histogram(name, help, labels, buckets)}};
    for (const std::string_view alias : aliases) {
      named.metrics.push_back(registry.add_histogram(alias, help, labels, buckets));
    }
    return named;
  }

  MetricLabels with(std::string_view name, std::string_view value) const {
    MetricLabels all = labels;
    all.emplace_back(name, value);
    return all;
  }

  void add_route(std::string_view path) {
    if (std::ranges::find(route_paths, path) != route_paths.end()) return;
    route_paths.push_back(path);
    for (const std::string_view status : kStatusClasses) {
      MetricLabels all = with("route", path);
      all.emplace_back("status", status);
      answers.push_back(registry.add_counter("thalweg_http_requests_total", "Answers, by route and status.", all));
    }
  }

  MetricsRegistry registry;
  const MetricLabels labels;

  // Kept here, so that one scrape shows numbers that add up.
  std::atomic<std::uint64_t> num_admitted = 0;
  std::array<std::atomic<std::uint64_t>, kOutcomes.size()> num_finished{};
  const Named<Counter> admitted =
      counter("thalweg_requests_admitted_total", "Requests that the engine took: one prompt with all its sequences.");
  std::array<Named<Counter>, kOutcomes.size()> finished;
  const Named<Gauge> in_flight = gauge("thalweg_requests_in_flight", "Requests taken and not ended.");

  std::vector<std::string_view> route_paths;
  std::vector<Counter> answers;  // [route][status class]
  const Named<Counter> clients_gone =
      counter("thalweg_clients_gone_total", "Clients that left before their answer was complete.");

  const Named<Histogram> first_token = histogram("thalweg_time_to_first_token_seconds", "From arrival to first token.",
                                                 seconds(), {"vllm:time_to_first_token_seconds"});
  const Named<Histogram> next_token =
      histogram("thalweg_inter_token_latency_seconds", "Between two deliveries of one sequence.", seconds(),
                {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"});
  const Named<Histogram> per_token =
      histogram("thalweg_request_time_per_output_token_seconds", "Decode time of a request by its tokens.", seconds(),
                {"vllm:request_time_per_output_token_seconds"});
  const Named<Histogram> total = histogram("thalweg_request_seconds", "From arrival to the last token.", seconds(),
                                           {"vllm:e2e_request_latency_seconds"});
  const Named<Histogram> queue = histogram("thalweg_request_queue_seconds", "Waiting to be scheduled.", seconds(),
                                           {"vllm:request_queue_time_seconds"});
  const Named<Histogram> prefill = histogram("thalweg_request_prefill_seconds", "Computing the prompt.", seconds(),
                                             {"vllm:request_prefill_time_seconds"});
  const Named<Histogram> decode = histogram("thalweg_request_decode_seconds", "From first to last token.", seconds(),
                                            {"vllm:request_decode_time_seconds"});
  const Named<Histogram> inference = histogram("thalweg_request_inference_seconds", "Prefill and decode.", seconds(),
                                               {"vllm:request_inference_time_seconds"});
  const Named<Histogram> prompt_tokens =
      histogram("thalweg_request_prompt_tokens", "Tokens of a prompt.", token_counts(), {"vllm:request_prompt_tokens"});
  const Named<Histogram> output_tokens = histogram("thalweg_request_output_tokens", "Generated tokens of a request.",
                                                   token_counts(), {"vllm:request_generation_tokens"});
  const Named<Histogram> params_n =
      histogram("thalweg_request_params_n", "Sequences asked for.", sequence_counts(), {"vllm:request_params_n"});
  const Named<Histogram> params_max_tokens = histogram("thalweg_request_params_max_tokens", "Tokens asked for.",
                                                       token_counts(), {"vllm:request_params_max_tokens"});

  // The engine's.
  const Named<Gauge> running =
      gauge("thalweg_sequences_running", "Sequences being computed.", {"vllm:num_requests_running"});
  const Named<Gauge> waiting =
      gauge("thalweg_sequences_waiting", "Sequences waiting to be scheduled.", {"vllm:num_requests_waiting"});
  std::array<Named<Gauge>, kWaitReasons.size()> waiting_by_reason;
  const Named<Gauge> kv_usage = gauge("thalweg_kv_cache_usage_ratio", "Share of blocks held by sequences, 1 is full.",
                                      {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"});
  const Named<Gauge> blocks = gauge("thalweg_kv_blocks", "Blocks of the KV cache.");
  const Named<Counter> steps = counter("thalweg_steps_total", "Turns of the engine loop.");
  const Named<Counter> rejected = counter("thalweg_requests_rejected_total", "Requests that the engine refused.");
  const Named<Counter> preemptions =
      counter("thalweg_preemptions_total", "Sequences that gave their blocks back.", {"vllm:num_preemptions_total"});
  const Named<Counter> prompt_total =
      counter("thalweg_prompt_tokens_total", "Prompt tokens taken.", {"vllm:prompt_tokens_total"});
  const Named<Counter> output_total =
      counter("thalweg_output_tokens_total", "Tokens generated.", {"vllm:generation_tokens_total"});
  const Named<Counter> prefix_queries = counter("thalweg_prefix_cache_query_tokens_total", "Prompt tokens looked up.",
                                                {"vllm:prefix_cache_queries_total"});
  const Named<Counter> prefix_hits =
      counter("thalweg_prefix_cache_hit_tokens_total", "Prompt tokens found.", {"vllm:prefix_cache_hits_total"});
  const Named<Counter> drafts = counter("thalweg_spec_decode_drafts_total", "Verified runs of draft tokens.",
                                        {"vllm:spec_decode_num_drafts_total"});
  const Named<Counter> draft_tokens = counter("thalweg_spec_decode_draft_tokens_total", "Draft tokens verified.",
                                              {"vllm:spec_decode_num_draft_tokens_total"});
  const Named<Counter> accepted_tokens = counter("thalweg_spec_decode_accepted_tokens_total", "Draft tokens accepted.",
                                                 {"vllm:spec_decode_num_accepted_tokens_total"});
  std::vector<Named<Counter>> accepted_at;  // one per place of a draft
};

ServingMetrics::ServingMetrics(const std::string& model_name, const ModelDescription& model)
    : series_(std::make_unique<Series>(model_name)) {
  MetricLabels labels = series_->with("max_model_len", std::to_string(model.max_model_len));
  labels.emplace_back("kv_bytes_per_token", std::to_string(model.kv_bytes_per_token));
  for (const std::string_view name : {"thalweg_cache_config_info", "vllm:cache_config_info"}) {
    series_->registry.add_gauge(name, "What the KV cache was made for.", labels).set(1);
  }
  for (std::int32_t i = 0; i < model.max_draft_tokens; ++i) {
    const MetricLabels place = series_->with("position", std::to_string(i));
    Series::Named<Counter>& counters = series_->accepted_at.emplace_back();
    for (const std::string_view name : {"thalweg_spec_decode_accepted_tokens_per_position_total",
                                        "vllm:spec_decode_num_accepted_tokens_per_pos_total"}) {
      counters.metrics.push_back(series_->registry.add_counter(name, "Draft tokens accepted, by their place.", place));
    }
  }
}

ServingMetrics::~ServingMetrics() = default;

void ServingMetrics::answered(std::string_view route, int status) {
  const auto found = std::ranges::find(series_->route_paths, route);
  const auto index = static_cast<std::size_t>(found - series_->route_paths.begin());
  const auto status_class = static_cast<std::size_t>(std::clamp(status / 100, 1, 5) - 1);
  if (index < series_->route_paths.size()) series_->answers[index * kStatusClasses.size() + status_class].inc();
}

void ServingMetrics::client_gone() { series_->clients_gone.inc(); }

void ServingMetrics::admitted(std::int64_t num_sequences, std::int64_t max_tokens) {
  ++series_->num_admitted;
  series_->params_n.observe(static_cast<double>(num_sequences));
  series_->params_max_tokens.observe(static_cast<double>(max_tokens));
}

void ServingMetrics::first_token(double since_arrival_s) { series_->first_token.observe(since_arrival_s); }

void ServingMetrics::next_token(double since_last_s) { series_->next_token.observe(since_last_s); }

void ServingMetrics::finished(const FinishedRequest& request) {
  ++series_->num_finished[static_cast<std::size_t>(request.outcome)];
  series_->prompt_tokens.observe(static_cast<double>(request.num_prompt_tokens));
  series_->output_tokens.observe(static_cast<double>(request.num_output_tokens));
  // Times of requests that were broken off say nothing about how long requests take.
  if (request.outcome == RequestOutcome::kAborted || request.outcome == RequestOutcome::kFailed) return;
  const RequestTimings& timings = request.timings;
  series_->total.observe(request.total_s);
  series_->queue.observe(timings.queue_s);
  series_->prefill.observe(timings.prefill_s);
  series_->decode.observe(timings.decode_s);
  series_->inference.observe(timings.prefill_s + timings.decode_s);
  if (request.num_output_tokens > 1) {
    series_->per_token.observe(timings.decode_s / static_cast<double>(request.num_output_tokens - 1));
  }
}

std::string ServingMetrics::render(const EngineStats& stats) {
  Series& series = *series_;
  // Finished ones are read first: a request that ends meanwhile is then still in flight.
  std::uint64_t num_finished = 0;
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    const std::uint64_t count = series.num_finished[i];
    series.finished[i].set(static_cast<double>(count));
    num_finished += count;
  }
  const std::uint64_t num_admitted = series.num_admitted;
  series.admitted.set(static_cast<double>(num_admitted));
  series.in_flight.set(static_cast<double>(num_admitted - num_finished));

  series.running.set(stats.num_running);
  series.waiting.set(stats.num_waiting);
  series.waiting_by_reason[0].set(stats.num_waiting - stats.num_held);
  series.waiting_by_reason[1].set(stats.num_held);
  const auto num_blocks = static_cast<double>(stats.num_blocks_total);
  series.blocks.set(num_blocks);
  series.kv_usage.set(num_blocks > 0 ? static_cast<double>(stats.num_blocks_used) / num_blocks : 0.0);
  series.steps.set(static_cast<double>(stats.num_steps));
  series.rejected.set(static_cast<double>(stats.num_requests_rejected));
  series.preemptions.set(static_cast<double>(stats.num_preemptions));
  series.prompt_total.set(static_cast<double>(stats.num_prompt_tokens));
  series.output_total.set(static_cast<double>(stats.num_output_tokens));
  series.prefix_queries.set(static_cast<double>(stats.num_prefix_query_tokens));
  series.prefix_hits.set(static_cast<double>(stats.num_prefix_hit_tokens));
  series.drafts.set(static_cast<double>(stats.num_drafts));
  series.draft_tokens.set(static_cast<double>(stats.num_draft_tokens));
  series.accepted_tokens.set(static_cast<double>(stats.num_accepted_tokens));
  for (std::size_t i = 0; i < series.accepted_at.size(); ++i) {
    series.accepted_at[i].set(static_cast<double>(stats.num_accepted_at[i]));
  }
  std::string text = series.registry.render();
  for (const std::string_view name : {"thalweg_step_tokens", "vllm:iteration_tokens_total"}) {
    write_step_tokens(text, name, series.labels, stats);
  }
  return text;
}

}  // namespace thalweg::server
