#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace thalweg {
namespace {

// Linux maps up to this many bytes around a fault (fault_around_bytes), aligned to the same size.
constexpr std::uint64_t kFaultAround = 64 * 1024;

class FileDescriptor {
 public:
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

std::unexpected<Error> system_error(const std::string& path, const char* what, int number) {
  const ErrorCode code = number == ENOENT || number == ENOTDIR                      ? ErrorCode::kNotFound
                         : number == ENOMEM || number == EMFILE || number == ENFILE ? ErrorCode::kResourceExhausted
                                                                                    : ErrorCode::kFailedPrecondition;
  return fail(code, fmt::format("cannot {} '{}': {}", what, path, std::strerror(number)));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error(path, "open", errno);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) return system_error(path, "look at", errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is {}, needs a regular file", path,
                            S_ISDIR(status.st_mode) ? "a folder" : "neither a file nor a folder"));
  }
  MappedFile mapped;
  mapped.path_ = path;
  if (status.st_size == 0) return mapped;  // mmap refuses empty ranges
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "map", errno);
  mapped.data_ = static_cast<std::byte*>(data);
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::drop(std::uint64_t offset, std::uint64_t num_bytes) const {
  CHECK_LE(offset, size_);
  CHECK_LE(num_bytes, size_ - offset);
  if (num_bytes == 0) return;
  // Nobody writes to these pages, so dropping one that is still in use costs its user a fault, not data.
  const std::uint64_t begin = offset / kFaultAround * kFaultAround;
  const std::uint64_t end =
      std::min<std::uint64_t>(size_, (offset + num_bytes + kFaultAround - 1) / kFaultAround * kFaultAround);
  ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace thalweg
