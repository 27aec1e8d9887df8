#include "server/metrics_registry.h"

#include "base/check.h"
#include "base/log.h"
#include "text/rust_border.h"

namespace thalweg::server {

using text::slice_of;
using text::take_text;

void Counter::inc(double amount) const { tw_series_record(series_, amount); }
void Counter::set(double total) const { tw_series_set(series_, total); }
void Gauge::set(double value) const { tw_series_set(series_, value); }
void Gauge::inc(double amount) const { tw_series_record(series_, amount); }
void Histogram::observe(double value) const { tw_series_record(series_, value); }

MetricsRegistry::MetricsRegistry() : metrics_(tw_metrics_new()) {}
MetricsRegistry::~MetricsRegistry() { tw_metrics_free(metrics_); }

Counter MetricsRegistry::add_counter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  return Counter(add(TW_COUNTER, name, help, labels, {}));
}

Gauge MetricsRegistry::add_gauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  return Gauge(add(TW_GAUGE, name, help, labels, {}));
}

Histogram MetricsRegistry::add_histogram(std::string_view name, std::string_view help, const MetricLabels& labels,
                                         const std::vector<double>& buckets) {
  return Histogram(add(TW_HISTOGRAM, name, help, labels, buckets));
}

const TwSeries* MetricsRegistry::add(int kind, std::string_view name, std::string_view help, const MetricLabels& labels,
                                     const std::vector<double>& buckets) {
  std::vector<std::string> names;
  std::vector<tw_slice> name_slices;
  std::vector<tw_slice> value_slices;
  for (const auto& [label, value] : labels) {
    names.push_back(label);
    name_slices.push_back(slice_of(label));
    value_slices.push_back(slice_of(value));
  }
  tw_buffer error{};
  const auto check_made = [&](bool made) {
    if (made) return;
    log(LogLevel::kError, "metric {}: {}", name, take_text(error));
    CHECK(made);
  };

  std::lock_guard lock(mutex_);
  auto found = families_.find(name);
  if (found == families_.end()) {
    const int number = tw_metrics_add_family(metrics_, kind, slice_of(name), slice_of(help), name_slices.data(),
                                             name_slices.size(), buckets.data(), buckets.size(), &error);
    check_made(number >= 0);
    found = families_.emplace(name, Family{kind, number, std::move(names)}).first;
  } else {
    CHECK_EQ(found->second.kind, kind);
    CHECK(found->second.label_names == names);
  }
  const TwSeries* series =
      tw_metrics_series(metrics_, found->second.number, value_slices.data(), value_slices.size(), &error);
  check_made(series != nullptr);
  return series;
}

std::string MetricsRegistry::render() const {
  tw_buffer text{};
  tw_buffer error{};
  if (!tw_metrics_render(metrics_, &text, &error)) {
    log(LogLevel::kError, "metrics: {}", take_text(error));
    return {};
  }
  return take_text(text);
}

}  // namespace thalweg::server
