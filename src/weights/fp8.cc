#include "weights/fp8.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "weights/printable.h"

namespace thalweg::weights {
namespace {

using device::DType;

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return count / block + (count % block != 0); }

Result<std::vector<float>> read_scales(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const std::span<const std::byte> bytes = checkpoint.bytes(tensor);
  std::vector<float> scales(static_cast<std::size_t>(tensor.num_elements()));
  if (tensor.dtype == DType::kF32) {
    std::memcpy(scales.data(), bytes.data(), bytes.size());
  } else if (tensor.dtype == DType::kBF16) {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      std::uint16_t high = 0;
      std::memcpy(&high, bytes.data() + 2 * i, sizeof(high));
      scales[i] = std::bit_cast<float>(static_cast<std::uint32_t>(high) << 16);
    }
  } else {
    return fail(ErrorCode::kUnimplemented, fmt::format("scales '{}' have dtype {}, needs F32 or BF16",
                                                       printable(tensor.name), device::dtype_name(tensor.dtype)));
  }
  const auto bad = std::ranges::find_if(scales, [](float scale) { return !std::isfinite(scale); });
  if (bad != scales.end()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("scales '{}' hold {} at [{}], needs finite numbers",
                                                         printable(tensor.name), *bad, bad - scales.begin()));
  }
  return scales;
}

}  // namespace

Result<std::optional<Fp8Block>> fp8_block(const Checkpoint& checkpoint) {
  if (checkpoint.kind() != CheckpointKind::kHuggingFace) return std::nullopt;
  const Metadata& config = checkpoint.metadata();
  const std::string prefix = config.has("quantization_config")               ? "quantization_config."
                             : config.has("text_config.quantization_config") ? "text_config.quantization_config."
                                                                             : "";
  if (prefix.empty()) return std::nullopt;
  const Result<std::string> method = config.get_string(prefix + "quant_method");
  if (!method) return std::unexpected(method.error());
  if (*method != "fp8") {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("'{}' is quantised by the method '{}'; supported is 'fp8' with weight_block_size: choose "
                            "unquantised weights or a GGUF file",
                            checkpoint.path(), printable(*method)));
  }
  if (config.has(prefix + "fmt")) {
    const Result<std::string> format = config.get_string(prefix + "fmt");
    if (!format) return std::unexpected(format.error());
    if (*format != "e4m3") {
      return fail(ErrorCode::kUnimplemented,
                  fmt::format("'{}fmt' of '{}' is '{}', needs 'e4m3'", prefix, checkpoint.path(), printable(*format)));
    }
  }
  const Result<std::vector<std::int64_t>> size = config.get_ints(prefix + "weight_block_size");
  if (!size) return std::unexpected(size.error());
  if (size->size() != 2 || (*size)[0] < 1 || (*size)[1] < 1) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}weight_block_size' of '{}' is [{}], needs two positive "
                                                         "numbers such as [128, 128]",
                                                         prefix, checkpoint.path(), fmt::join(*size, ", ")));
  }
  return Fp8Block{(*size)[0], (*size)[1]};
}

Result<std::vector<float>> fp8_block_scales(const Checkpoint& checkpoint, const TensorInfo& weight) {
  if (weight.dtype != DType::kF8E4M3 || weight.shape.size() != 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' is {} of {} dimensions, needs F8_E4M3 of 2", printable(weight.name),
                            device::dtype_name(weight.dtype), weight.shape.size()));
  }
  const Result<std::optional<Fp8Block>> block = fp8_block(checkpoint);
  if (!block) return std::unexpected(block.error());
  if (!*block) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' is F8_E4M3, but config.json of '{}' has no quantization_config",
                            printable(weight.name), checkpoint.path()));
  }
  const Result<const TensorInfo*> scales = checkpoint.require(weight.name + "_scale_inv");
  if (!scales) return std::unexpected(scales.error());
  const std::vector<std::int64_t> needed{blocks_of(weight.shape[0], (*block)->rows),
                                         blocks_of(weight.shape[1], (*block)->cols)};
  if ((*scales)->shape != needed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("scales '{}' have shape [{}], needs [{}] for a weight of [{}] in blocks of [{}, {}]",
                            printable((*scales)->name), fmt::join((*scales)->shape, ", "), fmt::join(needed, ", "),
                            fmt::join(weight.shape, ", "), (*block)->rows, (*block)->cols));
  }
  return read_scales(checkpoint, **scales);
}

}  // namespace thalweg::weights
