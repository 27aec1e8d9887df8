// The tensors of a checkpoint with their names in order for look-up.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::weights {

/// Names are unique. A sorted index instead of a hash table: no file can make it slow.
class TensorTable {
 public:
  /// `files[tensor.file]` names the file in a message about a name that appears twice.
  static Result<TensorTable> create(std::vector<TensorInfo> tensors, std::span<const std::string> files);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;

 private:
  std::vector<TensorInfo> tensors_;     // in file order
  std::vector<std::uint32_t> by_name_;  // indices into tensors_
};

}  // namespace thalweg::weights
