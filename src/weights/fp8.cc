#include "weights/fp8.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "device/float_types.h"
#include "weights/printable.h"

namespace thalweg::weights {
namespace {

using device::DType;

constexpr Fp8Block kFp4Block{1, 32};

struct Fp8Config {
  Fp8Block block;
  bool power_of_two_scales = false;  // "scale_fmt": "ue8m0"
  bool fp4_experts = true;           // "expert_dtype" does not say otherwise
};

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return count / block + (count % block != 0); }

std::vector<float> floats_of(std::span<const std::byte> bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(device::block_layout(dtype).num_bytes));
  if (dtype == DType::kF32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, bytes.data() + 2 * i, sizeof(code));
    values[i] = device::float_from_bf16(code);
  }
  return values;
}

std::unexpected<Error> wrong_value(const TensorInfo& scales, std::ptrdiff_t index, float value,
                                   std::string_view needed) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("scales '{}' hold {} at [{}], needs {}", printable(scales.name), value, index, needed));
}

bool is_power_of_two(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5F;
}

Status check_values(const TensorInfo& scales, const BlockScales& read, bool powers_of_two) {
  const auto nan = std::ranges::find(read.bytes, std::byte{0xff});
  if (nan != read.bytes.end()) return wrong_value(scales, nan - read.bytes.begin(), NAN, "finite numbers");
  for (const float& value : read.values) {
    if (!std::isfinite(value)) return wrong_value(scales, &value - read.values.data(), value, "finite numbers");
    if (powers_of_two && !is_power_of_two(value)) {
      return wrong_value(scales, &value - read.values.data(), value, "powers of two, for scale_fmt is ue8m0");
    }
  }
  return {};
}

Status check_shape(const TensorInfo& weight, const TensorInfo& scales, std::int64_t num_cols, const Fp8Block& block) {
  const std::vector<std::int64_t> needed{blocks_of(weight.shape[0], block.rows), blocks_of(num_cols, block.cols)};
  if (scales.shape == needed) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("scales '{}' have shape [{}], needs [{}] for a weight of [{}, {}] in blocks of [{}, {}]",
                          printable(scales.name), fmt::join(scales.shape, ", "), fmt::join(needed, ", "),
                          weight.shape[0], num_cols, block.rows, block.cols));
}

// A member that may be absent.
Result<std::string> text_or(const Metadata& config, const std::string& key, std::string_view absent) {
  return config.has(key) ? config.get_string(key) : std::string(absent);
}

Status check_known(const Checkpoint& checkpoint, const std::string& key, const std::string& found,
                   std::initializer_list<std::string_view> known) {
  if (std::ranges::find(known, found) != known.end()) return {};
  return fail(ErrorCode::kUnimplemented, fmt::format("'{}' of '{}' is '{}', needs '{}'", key, checkpoint.path(),
                                                     printable(found), fmt::join(known, "' or '")));
}

Result<Fp8Block> read_block(const Checkpoint& checkpoint, const std::string& key) {
  const Result<std::vector<std::int64_t>> size = checkpoint.metadata().get_ints(key);
  if (!size) return std::unexpected(size.error());
  if (size->size() != 2 || (*size)[0] < 1 || (*size)[1] < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' of '{}' is [{}], needs two positive numbers such as [128, 128]", key,
                            checkpoint.path(), fmt::join(*size, ", ")));
  }
  return Fp8Block{(*size)[0], (*size)[1]};
}

Result<std::optional<Fp8Config>> fp8_config(const Checkpoint& checkpoint) {
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
  const Result<std::string> format = text_or(config, prefix + "fmt", "e4m3");
  if (!format) return std::unexpected(format.error());
  if (Status status = check_known(checkpoint, prefix + "fmt", *format, {"e4m3"}); !status) {
    return std::unexpected(status.error());
  }
  const Result<std::string> scales = text_or(config, prefix + "scale_fmt", "float");
  if (!scales) return std::unexpected(scales.error());
  if (Status status = check_known(checkpoint, prefix + "scale_fmt", *scales, {"ue8m0", "float"}); !status) {
    return std::unexpected(status.error());
  }
  const Result<std::string> experts = text_or(config, prefix + "expert_dtype", "fp4");
  if (!experts) return std::unexpected(experts.error());
  if (Status status = check_known(checkpoint, prefix + "expert_dtype", *experts, {"fp4", "fp8"}); !status) {
    return std::unexpected(status.error());
  }
  const Result<Fp8Block> block = read_block(checkpoint, prefix + "weight_block_size");
  if (!block) return std::unexpected(block.error());
  return Fp8Config{.block = *block, .power_of_two_scales = *scales == "ue8m0", .fp4_experts = *experts == "fp4"};
}

}  // namespace

Result<std::optional<Fp8Block>> fp8_block(const Checkpoint& checkpoint) {
  const Result<std::optional<Fp8Config>> config = fp8_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  if (!*config) return std::nullopt;
  return (*config)->block;
}

Result<BlockScales> read_block_scales(const Checkpoint& checkpoint, const TensorInfo& weight,
                                      const TensorInfo& scales) {
  const bool is_fp4 = weight.dtype == DType::kI8;
  if ((weight.dtype != DType::kF8E4M3 && !is_fp4) || weight.shape.size() != 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' is {} of {} dimensions, needs F8_E4M3 or I8 of 2", printable(weight.name),
                            device::dtype_name(weight.dtype), weight.shape.size()));
  }
  const Result<std::optional<Fp8Config>> config = fp8_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  if (!*config) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' has scales, but config.json of '{}' has no quantization_config",
                            printable(weight.name), checkpoint.path()));
  }
  if (is_fp4 && !(*config)->fp4_experts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' of '{}' is I8, which holds fp4, but expert_dtype of its config.json is fp8",
                            printable(weight.name), checkpoint.path()));
  }
  BlockScales read{.block = is_fp4 ? kFp4Block : (*config)->block};
  const std::int64_t num_cols = is_fp4 ? 2 * weight.shape[1] : weight.shape[1];
  if (Status status = check_shape(weight, scales, num_cols, read.block); !status) {
    return std::unexpected(status.error());
  }
  if (scales.dtype == DType::kF8E8M0) {
    read.bytes = checkpoint.bytes(scales);
  } else if (!is_fp4 && (scales.dtype == DType::kF32 || scales.dtype == DType::kBF16)) {
    read.values = floats_of(checkpoint.bytes(scales), scales.dtype);
  } else {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("scales '{}' have dtype {}, needs {}", printable(scales.name),
                            device::dtype_name(scales.dtype), is_fp4 ? "F8_E8M0" : "F32, BF16 or F8_E8M0"));
  }
  if (Status status = check_values(scales, read, (*config)->power_of_two_scales); !status) {
    return std::unexpected(status.error());
  }
  return read;
}

}  // namespace thalweg::weights
