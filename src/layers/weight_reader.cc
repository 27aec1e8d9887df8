#include "layers/weight_reader.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "weights/fp8.h"

namespace thalweg::layers {
namespace {

constexpr std::size_t kMaxNamedProblems = 8;

bool is_plain_float(device::DType dtype) {
  return dtype == device::DType::kF32 || dtype == device::DType::kF16 || dtype == device::DType::kBF16;
}

}  // namespace

WeightReader::WeightReader(const weights::Checkpoint& checkpoint, device::Stream& stream,
                           std::function<void(double)> progress)
    : checkpoint_(checkpoint), stream_(stream), progress_(std::move(progress)) {
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) bytes_total_ += tensor.num_bytes;
}

const weights::TensorInfo* WeightReader::find(const std::string& tensor, std::span<const std::int64_t> shape) {
  const weights::TensorInfo* found = checkpoint_.find(tensor);
  if (found == nullptr) {
    problems_.push_back(fmt::format("tensor '{}' of shape [{}] is missing", tensor, fmt::join(shape, ", ")));
    return nullptr;
  }
  used_.insert(tensor);
  if (!std::ranges::equal(found->shape, shape)) {
    problems_.push_back(fmt::format("tensor '{}' has shape [{}], needed [{}]", tensor, fmt::join(found->shape, ", "),
                                    fmt::join(shape, ", ")));
    return nullptr;
  }
  return found;
}

std::vector<float> WeightReader::block_scales(const weights::TensorInfo& tensor) {
  used_.insert(tensor.name + "_scale_inv");
  Result<std::vector<float>> scales = weights::fp8_block_scales(checkpoint_, tensor);
  if (scales) return std::move(*scales);
  problems_.push_back(scales.error().message);
  return {};
}

void WeightReader::done(const weights::TensorInfo& tensor) {
  checkpoint_.release(tensor);
  num_parameters_ += tensor.num_elements();
  bytes_done_ += tensor.num_bytes;
  if (progress_) progress_(static_cast<double>(bytes_done_) / static_cast<double>(bytes_total_));
}

kernels::LinearWeight WeightReader::pack(std::span<const kernels::StoredMatrix> matrices,
                                         std::initializer_list<MatrixPart> parts, kernels::RowOrder order) {
  std::vector<std::span<const std::int32_t>> row_maps;
  for (const MatrixPart& part : parts) row_maps.push_back(part.row_map);
  Result<kernels::LinearWeight> packed = kernels::LinearWeight::pack(stream_, matrices, order, row_maps);
  if (packed) {
    packed_bytes_ += static_cast<std::int64_t>(packed->num_bytes());
    return std::move(*packed);
  }
  problems_.push_back(fmt::format("tensor '{}.weight': {}", parts.begin()->name, packed.error().message));
  code_ = packed.error().code;
  return {};
}

kernels::LinearWeight WeightReader::linear(const std::string& name, std::int64_t num_rows, std::int64_t num_cols) {
  return linear({{name, num_rows}}, num_cols);
}

kernels::LinearWeight WeightReader::linear(std::initializer_list<MatrixPart> parts, std::int64_t num_cols,
                                           kernels::RowOrder order) {
  std::vector<const weights::TensorInfo*> tensors;
  std::vector<std::vector<float>> scales(parts.size());
  std::vector<kernels::StoredMatrix> matrices;
  for (const MatrixPart& part : parts) {
    const std::int64_t shape[] = {part.num_rows, num_cols};
    const weights::TensorInfo* tensor = find(part.name + ".weight", shape);
    if (tensor == nullptr) continue;
    std::vector<float>& scale = scales[matrices.size()];
    if (tensor->dtype == device::DType::kF8E4M3) {
      scale = block_scales(*tensor);
    }
    tensors.push_back(tensor);
    matrices.push_back({tensor->dtype, checkpoint_.bytes(*tensor).data(), part.num_rows, num_cols,
                        scale.empty() ? nullptr : scale.data()});
  }
  if (!problems_.empty()) return {};

  kernels::LinearWeight weight = pack(matrices, parts, order);
  for (const weights::TensorInfo* tensor : tensors) done(*tensor);
  return weight;
}

std::vector<kernels::LinearWeight> WeightReader::stacked_experts(std::initializer_list<MatrixPart> parts,
                                                                 std::int32_t num_experts, std::int64_t num_cols,
                                                                 kernels::RowOrder order) {
  std::vector<const weights::TensorInfo*> tensors;
  for (const MatrixPart& part : parts) {
    const std::int64_t shape[] = {num_experts, part.num_rows, num_cols};
    const weights::TensorInfo* tensor = find(part.name + ".weight", shape);
    if (tensor == nullptr) continue;
    if (tensor->dtype == device::DType::kF8E4M3) {
      problems_.push_back(fmt::format("tensor '{}' has type {}, which stacked experts do not support", tensor->name,
                                      device::dtype_name(tensor->dtype)));
    }
    tensors.push_back(tensor);
  }
  std::vector<kernels::LinearWeight> experts;
  for (std::int32_t expert = 0; expert < num_experts && problems_.empty(); ++expert) {
    std::vector<kernels::StoredMatrix> matrices;
    for (const weights::TensorInfo* tensor : tensors) {
      const std::int64_t num_rows = tensor->shape[1];
      const std::int64_t first_byte = expert * num_rows * device::row_bytes(tensor->dtype, num_cols);
      matrices.push_back({tensor->dtype, checkpoint_.bytes(*tensor).data() + first_byte, num_rows, num_cols});
    }
    experts.push_back(pack(matrices, parts, order));
  }
  for (const weights::TensorInfo* tensor : tensors) done(*tensor);
  return experts;
}

std::vector<float> WeightReader::vector(const std::string& tensor, std::int64_t size) {
  const std::int64_t shape[] = {size};
  const weights::TensorInfo* found = find(tensor, shape);
  if (found == nullptr) return {};
  if (!is_plain_float(found->dtype)) {
    problems_.push_back(
        fmt::format("tensor '{}' has type {}, needed f32, f16 or bf16", tensor, device::dtype_name(found->dtype)));
    return {};
  }
  std::vector<float> values(static_cast<std::size_t>(size));
  kernels::dequantize_rows({found->dtype, checkpoint_.bytes(*found).data(), 1, size}, 0, 1, values.data());
  packed_bytes_ += size * static_cast<std::int64_t>(sizeof(float));
  done(*found);
  return values;
}

std::vector<float> WeightReader::biases(std::initializer_list<MatrixPart> parts, kernels::RowOrder order) {
  std::vector<std::vector<float>> loaded;
  for (const MatrixPart& part : parts) {
    std::vector<float> bias = vector(part.name + ".bias", part.num_rows);
    if (!part.row_map.empty() && !bias.empty()) {
      std::vector<float> reordered(bias.size());
      for (std::size_t i = 0; i < bias.size(); ++i) {
        reordered[i] = bias[static_cast<std::size_t>(part.row_map[i])];
      }
      bias = std::move(reordered);
    }
    loaded.push_back(std::move(bias));
  }
  std::vector<float> all;
  if (!problems_.empty()) return all;
  if (order == kernels::RowOrder::kConcatenate) {
    for (const std::vector<float>& bias : loaded) all.insert(all.end(), bias.begin(), bias.end());
    return all;
  }
  for (std::size_t i = 0; i < loaded.front().size(); ++i) {
    for (const std::vector<float>& bias : loaded) all.push_back(bias[i]);
  }
  return all;
}

Status WeightReader::status() const {
  if (problems_.empty()) return {};
  const std::size_t num_named = std::min(problems_.size(), kMaxNamedProblems);
  std::string message =
      fmt::format("{}: {}", checkpoint_.path(), fmt::join(problems_.begin(), problems_.begin() + num_named, "; "));
  if (problems_.size() > num_named) message += fmt::format("; and {} more", problems_.size() - num_named);
  return fail(code_, std::move(message));
}

std::vector<std::string> WeightReader::unused() const {
  std::vector<std::string> names;
  for (const weights::TensorInfo& tensor : checkpoint_.tensors()) {
    if (!used_.contains(tensor.name)) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace thalweg::layers
