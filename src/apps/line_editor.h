// Reads lines from the terminal with editing and history.
#pragma once

#include <optional>
#include <string>
#include <string_view>

struct TwLineEditor;

namespace thalweg::apps {

/// One thread. When standard input is no terminal, lines are read as they are and no prompt is shown
/// with editing codes.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line without its end; nothing at the end of input or on Ctrl-C. Lines that are not blank
  /// are remembered and come back with the arrow keys.
  std::optional<std::string> read(std::string_view prompt);

 private:
  TwLineEditor* const editor_;  // null: no terminal
};

}  // namespace thalweg::apps
