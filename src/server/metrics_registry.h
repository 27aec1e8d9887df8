// Counters, gauges and histograms in the Prometheus text format.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct TwMetrics;
struct TwSeries;

namespace thalweg::server {

/// Names and values, in the order in which the family has them.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// One label combination of a counter family. Handles are small, copied freely, valid while their
/// registry lives and usable from any thread without a lock.
class Counter {
 public:
  void inc(double amount = 1.0) const;
  /// For a total that is kept elsewhere: brings the counter up to it.
  void set(double total) const;

 private:
  friend class MetricsRegistry;
  explicit Counter(const TwSeries* series) : series_(series) {}
  const TwSeries* series_;
};

class Gauge {
 public:
  void set(double value) const;
  void inc(double amount = 1.0) const;
  void dec(double amount = 1.0) const { inc(-amount); }

 private:
  friend class MetricsRegistry;
  explicit Gauge(const TwSeries* series) : series_(series) {}
  const TwSeries* series_;
};

class Histogram {
 public:
  void observe(double value) const;

 private:
  friend class MetricsRegistry;
  explicit Histogram(const TwSeries* series) : series_(series) {}
  const TwSeries* series_;
};

/// All functions may be called from any thread. A name added again with the same label names and other
/// values is a further series of the same family; with the same values it is the same series. Wrong
/// names, or one name with two kinds or sets of label names, are the programmer's mistake (CHECK).
class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();

  Counter add_counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Gauge add_gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  /// `buckets`: ascending upper bounds; the one without bound is added.
  Histogram add_histogram(std::string_view name, std::string_view help, const MetricLabels& labels,
                          const std::vector<double>& buckets);

  /// Text format 0.0.4.
  std::string render() const;

 private:
  struct Family {
    int kind = 0;
    int number = 0;
    std::vector<std::string> label_names;
  };

  const TwSeries* add(int kind, std::string_view name, std::string_view help, const MetricLabels& labels,
                      const std::vector<double>& buckets);

  TwMetrics* const metrics_;
  std::mutex mutex_;  // a leaf lock, taken when series are added; recording takes none
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace thalweg::server
