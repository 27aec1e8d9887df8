// Tiny checkpoints and what an independent implementation computes on them (python/deepseek_v41_golden.py). Tests only.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "weights/safetensors.h"

namespace thalweg::models::deepseek_v41 {

/// Tests that need them are skipped without.
inline bool has_golden_files() { return std::getenv("THALWEG_TEST_ASSETS") != nullptr; }

inline std::string golden_folder(const std::string& name) {
  const char* assets = std::getenv("THALWEG_TEST_ASSETS");
  CHECK(assets != nullptr);
  return std::string(assets) + "/deepseek_v41/" + name;
}

/// A file of tensors, by name.
class GoldenFile {
 public:
  GoldenFile() = default;
  explicit GoldenFile(const std::string& path) {
    Result<MappedFile> file = MappedFile::open(path);
    CHECK(file.has_value());
    file_ = std::move(*file);
    Result<weights::SafetensorsFile> parsed = weights::parse_safetensors(file_.bytes(), path);
    CHECK(parsed.has_value());
    for (weights::TensorInfo& tensor : parsed->tensors) tensors_.emplace(tensor.name, std::move(tensor));
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::int64_t> shape(const std::string& name) const { return tensors_.at(name).shape; }
  std::vector<float> floats(const std::string& name) const { return values<float>(name, device::DType::kF32); }
  std::vector<std::int32_t> ints(const std::string& name) const {
    return values<std::int32_t>(name, device::DType::kI32);
  }

 private:
  template <typename T>
  std::vector<T> values(const std::string& name, device::DType dtype) const {
    const auto found = tensors_.find(name);
    CHECK(found != tensors_.end() && found->second.dtype == dtype);
    std::vector<T> values(found->second.num_bytes / sizeof(T));
    std::memcpy(values.data(), file_.bytes().data() + found->second.offset, found->second.num_bytes);
    return values;
  }

  MappedFile file_;
  std::unordered_map<std::string, weights::TensorInfo> tensors_;
};

}  // namespace thalweg::models::deepseek_v41
