#include "device/cuda/device.h"

#include <fmt/format.h>

#include "device/cuda/status.h"

namespace thalweg::device {
namespace {

// The library's machine code is for sm_90a, which runs on 9.0 and on nothing else.
constexpr std::int32_t kMajor = 9;
constexpr std::int32_t kMinor = 0;

}  // namespace

CudaDevice::CudaDevice(const CudaTable& table, std::int32_t ordinal, const CudaProperties& properties)
    : table_(&table),
      ordinal_(ordinal),
      properties_(properties),
      name_(fmt::format("CUDA device {} ({})", ordinal, properties.name)) {}

Result<CudaDevice> CudaDevice::open(const CudaTable& table, std::int32_t ordinal) {
  CudaProperties properties{};
  const std::string where = fmt::format("CUDA device {}", ordinal);
  if (Status status = to_status(table.properties(ordinal, &properties), where); !status) {
    return std::unexpected(status.error());
  }
  CudaDevice device(table, ordinal, properties);
  if (properties.major == kMajor && properties.minor == kMinor) return device;
  return fail(ErrorCode::kFailedPrecondition,
              fmt::format("{} has compute capability {}.{}, {}.{} is needed (H100, H200)", device.name(),
                          properties.major, properties.minor, kMajor, kMinor));
}

Status CudaDevice::make_current() const { return check(table_->make_current(ordinal_)); }

Result<CudaMemory> CudaDevice::memory() const {
  CudaMemory memory;
  if (Status status = check(table_->memory(ordinal_, &memory.free_bytes, &memory.total_bytes)); !status) {
    return std::unexpected(status.error());
  }
  return memory;
}

Status CudaDevice::enable_peer_access(const CudaDevice& peer) const {
  std::int32_t can = 0;
  if (Status status = check(table_->can_access_peer(ordinal_, peer.ordinal_, &can)); !status) return status;
  if (can == 0) {
    return fail(ErrorCode::kFailedPrecondition, fmt::format("{} cannot reach the memory of {}", name_, peer.name_));
  }
  return check(table_->enable_peer_access(ordinal_, peer.ordinal_));
}

Status CudaDevice::check(const CudaStatus& status) const { return to_status(status, name_); }

Result<std::vector<CudaDevice>> open_cuda_devices(const CudaTable& table) {
  std::int32_t num_devices = 0;
  if (Status status = to_status(table.num_devices(&num_devices), "CUDA"); !status) {
    return std::unexpected(status.error());
  }
  std::vector<CudaDevice> devices;
  std::string refused;
  for (std::int32_t ordinal = 0; ordinal < num_devices; ++ordinal) {
    Result<CudaDevice> device = CudaDevice::open(table, ordinal);
    if (device) {
      devices.push_back(*std::move(device));
    } else {
      refused += (refused.empty() ? "" : "; ") + device.error().message;
    }
  }
  if (!devices.empty()) return devices;
  if (num_devices == 0) return fail(ErrorCode::kNotFound, "the NVIDIA driver shows no GPU to this process");
  return fail(ErrorCode::kFailedPrecondition, refused);
}

}  // namespace thalweg::device
