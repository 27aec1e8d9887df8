#include "apps/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"

namespace thalweg::apps {
namespace {

constexpr int kWidth = 30;
constexpr double kQuietStart_s = 0.1;
constexpr double kRedrawInterval_s = 0.05;

}  // namespace

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), on_terminal_(isatty(STDERR_FILENO) == 1), started_s_(SteadyClock().now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && on_terminal_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::update(double fraction, const std::string& detail) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const double now = SteadyClock().now();
  if (on_terminal_) {
    if (now - started_s_ < kQuietStart_s || now - last_drawn_s_ < kRedrawInterval_s) return;
    last_drawn_s_ = now;
    draw(fraction, detail);
    return;
  }
  const int tenth = static_cast<int>(fraction * 10.0);
  if (now - started_s_ < 10.0 * kQuietStart_s || tenth == last_tenth_) return;
  last_tenth_ = tenth;
  fmt::print(stderr, "{} {}% {}\n", title_, tenth * 10, detail);
}

void ProgressBar::draw(double fraction, const std::string& detail) {
  const int full = static_cast<int>(fraction * kWidth);
  fmt::print(stderr, "\r\033[K{} [{:━<{}}{: <{}}] {:3.0f}% {}", title_, "", full, "", kWidth - full, fraction * 100.0,
             detail);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace thalweg::apps
