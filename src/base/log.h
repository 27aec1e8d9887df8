// Log lines to standard error. Format strings are fmt's.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace thalweg {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Lines below `level` are dropped. Default kInfo.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace thalweg
