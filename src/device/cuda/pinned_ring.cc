#include "device/cuda/pinned_ring.h"

#include <utility>

#include "base/check.h"

namespace thalweg::device {

PinnedRing::PinnedRing(std::unique_ptr<std::byte, Free> memory, std::size_t slot_bytes, std::vector<CudaEvent> done)
    : memory_(std::move(memory)), slot_bytes_(slot_bytes), done_(std::move(done)), slot_(done_.size() - 1) {}

Result<PinnedRing> PinnedRing::create(const CudaDevice& device, std::int32_t num_slots, std::size_t slot_bytes) {
  CHECK_GT(num_slots, 0);
  const CudaTable& table = device.table();
  void* allocated = nullptr;
  const CudaStatus status =
      table.host_allocate(device.ordinal(), static_cast<std::size_t>(num_slots) * slot_bytes, &allocated);
  if (Status checked = device.check(status); !checked) return std::unexpected(checked.error());
  std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(allocated), {&table});
  std::vector<CudaEvent> done;
  for (std::int32_t slot = 0; slot < num_slots; ++slot) {
    Result<CudaEvent> event = CudaEvent::create(device);
    if (!event) return std::unexpected(event.error());
    done.push_back(*std::move(event));
  }
  return PinnedRing(std::move(memory), slot_bytes, std::move(done));
}

Result<std::span<std::byte>> PinnedRing::acquire() {
  slot_ = (slot_ + 1) % done_.size();
  if (Status status = done_[slot_].synchronize(); !status) return std::unexpected(status.error());
  return std::span(memory_.get() + slot_ * slot_bytes_, slot_bytes_);
}

void PinnedRing::release(CudaStream& stream) { stream.record(done_[slot_]); }

}  // namespace thalweg::device
