// Progress on standard error: a bar that redraws itself on a terminal, plain lines otherwise.
#pragma once

#include <string>

namespace thalweg::apps {

class ProgressBar {
 public:
  /// `title` begins the line. Nothing is drawn before the first update, and nothing at all for work
  /// that ends within the first tenth of a second on a terminal.
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `fraction` in [0, 1]; `detail` follows the bar ("12/40 prompts"). May be called from one thread at a time.
  void update(double fraction, const std::string& detail = {});

 private:
  void draw(double fraction, const std::string& detail);

  const std::string title_;
  const bool on_terminal_;
  const double started_s_;
  double last_drawn_s_ = 0.0;
  int last_tenth_ = -1;
  bool drawn_ = false;
};

}  // namespace thalweg::apps
