#include "weights/checkpoint.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "weights/gguf.h"
#include "weights/hugging_face.h"
#include "weights/json_metadata.h"
#include "weights/printable.h"
#include "weights/tensor_size.h"

namespace thalweg::weights {
namespace {

constexpr std::size_t kMaxArchitectureBytes = 128;

Result<std::unique_ptr<Checkpoint>> open_any(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return fail(ErrorCode::kNotFound,
                error && error != std::errc::no_such_file_or_directory
                    ? fmt::format("cannot look at '{}': {}", path, error.message())
                    : fmt::format("there is no file or folder '{}'; needs a .gguf file or a folder with config.json "
                                  "and *.safetensors",
                                  path));
  }
  if (std::filesystem::is_directory(status)) return open_hugging_face(path);
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".safetensors" || ending == ".json") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is one file of a model folder; name the folder instead, '{}'", path,
                            std::filesystem::absolute(path, error).parent_path().string()));
  }
  if (ending == ".bin" || ending == ".pt" || ending == ".pth" || ending == ".ckpt") {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("'{}' is a pickle; those are not read because reading one runs code from it: convert the "
                            "model to safetensors or GGUF",
                            path));
  }
  return open_gguf(path);
}

}  // namespace

std::int64_t TensorInfo::num_elements() const {
  const std::optional<std::int64_t> count = checked_num_elements(shape);
  CHECK(count.has_value());
  return *count;
}

std::string language_model_key(const Metadata& metadata, std::string_view key) {
  std::string nested = fmt::format("text_config.{}", key);
  return metadata.has(nested) ? nested : std::string(key);
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  Result<std::unique_ptr<Checkpoint>> checkpoint = open_any(path);
  if (!checkpoint) return checkpoint;
  // The name goes into messages and onto terminals from many places, so it is checked in one.
  const std::string& architecture = (*checkpoint)->architecture();
  if (architecture.empty() || printable(architecture, kMaxArchitectureBytes) != architecture) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' names the architecture '{}', needs 1 to {} printable bytes", path,
                            printable(architecture), kMaxArchitectureBytes));
  }
  return checkpoint;
}

Result<const TensorInfo*> Checkpoint::require(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("'{}' has no tensor '{}'", path(), printable(name)));
  }
  return tensor;
}

const Metadata& Checkpoint::generation_metadata() const {
  static const JsonMetadata kEmpty("generation_config.json");
  return kEmpty;
}

}  // namespace thalweg::weights
