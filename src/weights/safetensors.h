// The safetensors format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/dtype.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::weights {

/// An element type of the format; `dtype` is empty for those that nothing here computes with.
struct SafetensorsType {
  std::string_view name;
  std::uint32_t bits = 0;
  std::optional<device::DType> dtype;
};

/// Null when the format has no such type.
const SafetensorsType* find_safetensors_type(std::string_view name);
const SafetensorsType* find_safetensors_type(device::DType dtype);

/// A tensor that is well described but of a type without meaning here; an error only for who needs it.
struct UnsupportedTensor {
  std::string name;
  std::string_view type;  // static text
};

/// A checked header.
struct SafetensorsFile {
  std::vector<TensorInfo> tensors;  // in file order, offsets from the start of the file
  std::vector<UnsupportedTensor> unsupported;
};

/// `bytes` is the whole file; `path` appears in messages. Tensors fill the file without holes or overlap.
Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes, const std::string& path);

}  // namespace thalweg::weights
