#include "device/arena.h"

namespace thalweg::device {
namespace {

// Address space only: pages come with the first write.
constexpr std::size_t kMappingBytes = std::size_t{64} << 20;
// From here on a buffer fills huge pages of its own.
constexpr std::size_t kOwnMappingBytes = std::size_t{16} << 20;
constexpr std::size_t kAlignment = 64;

}  // namespace

Buffer Arena::take(std::size_t num_bytes) {
  if (num_bytes == 0) return {};
  if (num_bytes >= kOwnMappingBytes) return Buffer(num_bytes);
  if (mapping_ == nullptr || mapping_->size() - used_ < num_bytes) {
    mapping_ = std::make_shared<Buffer>(kMappingBytes);
    used_ = 0;
  }
  Buffer cut(mapping_, used_, num_bytes);
  used_ = (used_ + num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return cut;
}

}  // namespace thalweg::device
