#include "device/cuda/memory_plan.h"

#include <fmt/format.h>

namespace thalweg::device {
namespace {

std::string amount(std::size_t num_bytes) {
  if (num_bytes < std::size_t{1} << 30) return fmt::format("{:.1f} MiB", static_cast<double>(num_bytes) / (1 << 20));
  return fmt::format("{:.1f} GiB", static_cast<double>(num_bytes) / (1 << 30));
}

std::size_t total(const std::vector<PlannedMemory>& parts) {
  std::size_t sum = 0;
  for (const PlannedMemory& part : parts) sum += part.num_bytes;
  return sum;
}

}  // namespace

std::string describe_memory(const std::vector<PlannedMemory>& parts, std::size_t free_bytes) {
  std::string list;
  for (const PlannedMemory& part : parts) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", part.name, amount(part.num_bytes));
  }
  return fmt::format("{}: {} of {} free", list, amount(total(parts)), amount(free_bytes));
}

Status check_memory(const CudaDevice& device, const std::vector<PlannedMemory>& parts, std::size_t free_bytes) {
  const std::size_t wanted = total(parts);
  if (wanted <= free_bytes) return {};
  return fail(ErrorCode::kResourceExhausted,
              fmt::format("{} has too little memory by {} ({})", device.name(), amount(wanted - free_bytes),
                          describe_memory(parts, free_bytes)));
}

}  // namespace thalweg::device
