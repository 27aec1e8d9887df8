// A file in memory, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "thalweg/error.h"

namespace thalweg {

/// The bytes of a regular file, mapped while this lives; moving keeps their address. May be read by any
/// thread. Whoever shortens the file meanwhile ends the process with SIGBUS when the lost part is read:
/// replace a model file by renaming a new one over it, never in place.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Takes the pages of a range out of this process (they stay in the page cache); a later read maps
  /// them again. Also drops neighbours that the kernel mapped along when it met a fault in the range.
  void drop(std::uint64_t offset, std::uint64_t num_bytes) const;

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace thalweg
