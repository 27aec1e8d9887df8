#include "weights/mapped_checkpoint.h"

#include <cstddef>
#include <utility>

#include "base/check.h"
#include "weights/tensor_size.h"

namespace thalweg::weights {

MappedCheckpoint::MappedCheckpoint(std::string path, std::string architecture, std::vector<MappedFile> files,
                                   TensorTable table)
    : path_(std::move(path)),
      architecture_(std::move(architecture)),
      files_(std::make_shared<const std::vector<MappedFile>>(std::move(files))),
      table_(std::move(table)) {}

const MappedFile& MappedCheckpoint::file_of(const TensorInfo& tensor) const {
  CHECK_LT(static_cast<std::size_t>(tensor.file), files_->size());
  const MappedFile& file = (*files_)[static_cast<std::size_t>(tensor.file)];
  CHECK(lies_inside(tensor.offset, tensor.num_bytes, file.bytes().size()));
  return file;
}

std::span<const std::byte> MappedCheckpoint::bytes(const TensorInfo& tensor) const {
  return file_of(tensor).bytes().subspan(tensor.offset, tensor.num_bytes);
}

void MappedCheckpoint::release(const TensorInfo& tensor) const {
  file_of(tensor).drop(tensor.offset, tensor.num_bytes);
}

std::vector<std::string> MappedCheckpoint::files() const {
  std::vector<std::string> paths;
  for (const MappedFile& file : *files_) paths.push_back(file.path());
  return paths;
}

}  // namespace thalweg::weights
