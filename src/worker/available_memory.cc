#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "worker/memory_plan.h"

namespace thalweg::worker {
namespace {

std::optional<std::int64_t> read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // absent, or "max"
  return value;
}

/// The number behind `name` in a file of "name number ..." lines.
std::optional<std::int64_t> read_named(const char* path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  std::int64_t value = 0;
  std::string rest;
  while (file >> word >> value) {
    if (word == name) return value;
    std::getline(file, rest);
  }
  return std::nullopt;
}

/// What is left of the control group that this process sees as its root. The group's file pages can be
/// dropped.
std::optional<std::int64_t> read_group_available() {
  const auto limit = read_number("/sys/fs/cgroup/memory.max");
  const auto current = read_number("/sys/fs/cgroup/memory.current");
  if (!limit || !current) return std::nullopt;
  constexpr const char* kStat = "/sys/fs/cgroup/memory.stat";
  const std::int64_t droppable =
      read_named(kStat, "inactive_file").value_or(0) + read_named(kStat, "active_file").value_or(0);
  return *limit - *current + droppable;
}

}  // namespace

std::int64_t available_memory_bytes() {
  constexpr std::int64_t kUnknownKib = std::int64_t{4} << 20;
  std::int64_t bytes = read_named("/proc/meminfo", "MemAvailable:").value_or(kUnknownKib) * 1024;
  if (const auto group = read_group_available()) bytes = std::min(bytes, *group);
  return std::max<std::int64_t>(bytes, 0);
}

}  // namespace thalweg::worker
