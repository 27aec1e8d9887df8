#include "apps/line_editor.h"

#include <unistd.h>

#include <cstdint>
#include <iostream>

#include "base/log.h"
#include "text/rust_border.h"

namespace thalweg::apps {

using text::slice_of;
using text::take_text;

namespace {

TwLineEditor* open_editor() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return nullptr;
  tw_buffer error{};
  TwLineEditor* editor = tw_line_editor_new(&error);
  if (editor == nullptr) log(LogLevel::kWarning, "line editing is off: {}", take_text(error));
  return editor;
}

}  // namespace

LineEditor::LineEditor() : editor_(open_editor()) {}
LineEditor::~LineEditor() { tw_line_editor_free(editor_); }

std::optional<std::string> LineEditor::read(std::string_view prompt) {
  if (editor_ == nullptr) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  tw_buffer text{};
  tw_buffer error{};
  const std::int32_t outcome = tw_line_editor_read(editor_, slice_of(prompt), &text, &error);
  if (outcome < 0) log(LogLevel::kError, "terminal: {}", take_text(error));
  if (outcome != 0) return std::nullopt;
  std::string line = take_text(text);
  if (line.find_first_not_of(" \t") != std::string::npos) tw_line_editor_remember(editor_, slice_of(line));
  return line;
}

}  // namespace thalweg::apps
