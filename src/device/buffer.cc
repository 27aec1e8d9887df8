#include "device/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace thalweg::device {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Maps more than asked for and gives back the ends, so that huge pages fit from the first byte on.
std::byte* map_aligned(std::size_t num_bytes, std::size_t alignment) {
  void* mapped = mmap(nullptr, num_bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_NE(mapped, MAP_FAILED);
  auto* first = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = round_up(address, alignment) - address;
  if (before > 0) munmap(first, before);
  munmap(first + before + num_bytes, alignment - before);
  return first + before;
}

}  // namespace

Buffer::Buffer(std::size_t num_bytes) : size_(num_bytes) {
  if (num_bytes == 0) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  mapped_ = round_up(num_bytes, page);
  if (num_bytes >= kHugePage) {
    data_ = map_aligned(mapped_, kHugePage);
    // Where huge pages are switched off the memory works all the same.
    madvise(data_, mapped_, MADV_HUGEPAGE);
    return;
  }
  void* mapped = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_NE(mapped, MAP_FAILED);
  data_ = static_cast<std::byte*>(mapped);
}

Buffer::Buffer(std::shared_ptr<Buffer> whole, std::size_t offset, std::size_t num_bytes)
    : data_(whole->data() + offset), size_(num_bytes), whole_(std::move(whole)) {
  CHECK_LE(offset + num_bytes, whole_->size());
}

Buffer::~Buffer() {
  if (mapped_ > 0) munmap(data_, mapped_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      whole_(std::move(other.whole_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(whole_, other.whole_);
  return *this;
}

}  // namespace thalweg::device
