#include "device/cuda/arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/cuda/memory_plan.h"

namespace thalweg::device {
namespace {

constexpr std::size_t kAlignment = 256;  // what cudaMalloc promises

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Result<CudaArena> CudaArena::reserve(const CudaDevice& device, std::size_t num_bytes,
                                     std::span<const CudaDevice> peers) {
  CHECK_GT(num_bytes, 0U);
  const CudaTable& table = device.table();
  CudaArena arena(device);
  arena.users_.push_back(device.ordinal());
  for (const CudaDevice& peer : peers) arena.users_.push_back(peer.ordinal());
  Status status = device.check(table.memory_granularity(device.ordinal(), &arena.granularity_));
  if (!status) return std::unexpected(status.error());
  const std::size_t rounded = round_up(num_bytes, arena.granularity_);
  status = device.check(table.address_reserve(device.ordinal(), rounded, &arena.address_));
  if (!status) return std::unexpected(status.error());
  arena.reserved_bytes_ = rounded;
  return arena;
}

CudaArena::~CudaArena() {
  if (reserved_bytes_ == 0) return;
  static_cast<void>(sleep());  // fails only where the context is lost, and the memory with it
  device_.table().address_free(address_, reserved_bytes_);
}

CudaArena::CudaArena(CudaArena&& other) noexcept : device_(other.device_) { swap(other); }

CudaArena& CudaArena::operator=(CudaArena&& other) noexcept {
  swap(other);
  return *this;
}

void CudaArena::swap(CudaArena& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(users_, other.users_);
  std::swap(address_, other.address_);
  std::swap(granularity_, other.granularity_);
  std::swap(reserved_bytes_, other.reserved_bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(taken_bytes_, other.taken_bytes_);
  std::swap(wake_bytes_, other.wake_bytes_);
  std::swap(parts_, other.parts_);
}

Status CudaArena::grow(std::size_t num_bytes) {
  CHECK_LE(num_bytes, reserved_bytes_);
  const std::size_t wanted = round_up(num_bytes, granularity_);
  if (wanted <= mapped_bytes_) return {};
  const CudaTable& table = device_.table();
  Part part{.offset = mapped_bytes_, .num_bytes = wanted - mapped_bytes_, .memory = 0};
  const CudaStatus created = table.memory_create(device_.ordinal(), part.num_bytes, &part.memory);
  if (created.failure == CudaFailure::kOutOfMemory) {
    const Result<CudaMemory> memory = device_.memory();
    if (!memory) return std::unexpected(memory.error());
    // Free memory may be in pieces that the driver cannot join; then the plan fits and CUDA's own words are left.
    const Status fits = check_memory(device_, {{"arena", part.num_bytes}}, memory->free_bytes);
    if (!fits) return fits;
  }
  if (Status status = device_.check(created); !status) return status;
  const CudaStatus mapped = table.memory_map(address_ + part.offset, part.num_bytes, part.memory, users_.data(),
                                             static_cast<std::int32_t>(users_.size()));
  if (Status status = device_.check(mapped); !status) {
    table.memory_release(part.memory);
    return status;
  }
  parts_.push_back(part);
  mapped_bytes_ = wanted;
  return {};
}

std::byte* CudaArena::take(std::size_t num_bytes) {
  const std::size_t end = taken_bytes_ + round_up(num_bytes, kAlignment);
  CHECK_LE(end, mapped_bytes_);
  return data() + std::exchange(taken_bytes_, end);
}

Status CudaArena::sleep() {
  const CudaTable& table = device_.table();
  wake_bytes_ = std::max(wake_bytes_, mapped_bytes_);
  while (!parts_.empty()) {
    const Part& part = parts_.back();
    if (Status status = device_.check(table.memory_unmap(address_ + part.offset, part.num_bytes)); !status) {
      return status;
    }
    const Status released = device_.check(table.memory_release(part.memory));
    mapped_bytes_ = part.offset;
    parts_.pop_back();
    if (!released) return released;
  }
  return {};
}

Status CudaArena::wake() {
  const Status status = grow(wake_bytes_);
  if (status) wake_bytes_ = 0;
  return status;
}

}  // namespace thalweg::device
