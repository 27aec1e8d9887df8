// Writes a safetensors file front to back, holding none of its tensors in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/dtype.h"
#include "thalweg/error.h"

namespace thalweg::weights {

/// One thread at a time. The file appears under its name when finish() succeeds; until then it is
/// "<path>.partial", which a writer that is destroyed early removes.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    device::DType dtype = device::DType::kF32;
    std::vector<std::int64_t> shape;
  };

  /// `tensors` in the order in which their data will come; wide element types before narrow ones, so that
  /// all are aligned. `metadata` becomes "__metadata__".
  static Result<SafetensorsWriter> create(const std::string& path, const std::vector<Tensor>& tensors,
                                          const std::vector<std::pair<std::string, std::string>>& metadata = {});

  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();

  /// The next bytes of the tensors' data, in pieces of any size, across tensors or not.
  Status append(std::span<const std::byte> bytes);

  std::uint64_t bytes_missing() const { return bytes_missing_; }

  /// Fails when bytes are missing.
  Status finish();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  SafetensorsWriter(std::string path, std::unique_ptr<std::FILE, CloseFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string partial_path() const { return path_ + ".partial"; }
  void discard();

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;  // null once finished or moved from
  std::uint64_t bytes_missing_ = 0;
};

}  // namespace thalweg::weights
