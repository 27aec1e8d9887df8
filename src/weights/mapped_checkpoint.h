// What both kinds of checkpoint share: mapped files and a table of tensors inside them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace thalweg::weights {

class MappedCheckpoint : public Checkpoint {
 public:
  /// Precondition: every tensor of the table lies inside its file.
  MappedCheckpoint(std::string path, std::string architecture, std::vector<MappedFile> files, TensorTable table);

  const std::string& path() const override { return path_; }
  const std::string& architecture() const override { return architecture_; }
  const std::vector<TensorInfo>& tensors() const override { return table_.tensors(); }
  const TensorInfo* find(std::string_view name) const override { return table_.find(name); }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const override;
  void release(const TensorInfo& tensor) const override;
  std::vector<std::string> files() const override;
  std::shared_ptr<const void> hold() const override { return files_; }

 private:
  const MappedFile& file_of(const TensorInfo& tensor) const;

  const std::string path_;
  const std::string architecture_;
  const std::shared_ptr<const std::vector<MappedFile>> files_;
  const TensorTable table_;
};

}  // namespace thalweg::weights
