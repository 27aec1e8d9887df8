#include "layers/weight_reader.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "weights/fp8.h"
#include "weights/printable.h"

namespace thalweg::layers {
namespace {

using device::DType;

constexpr std::size_t kMaxNamedProblems = 8;

bool is_plain_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

template <typename T>
T load(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

/// Where a matrix's scales may be.
std::array<std::string, 2> scale_names(const std::string& tensor) {
  constexpr std::string_view kEnding = ".weight";
  const std::string stem = tensor.ends_with(kEnding) ? tensor.substr(0, tensor.size() - kEnding.size()) : tensor;
  return {stem + ".scale", tensor + "_scale_inv"};
}

/// Rows [first, first + num_rows) of a matrix. Precondition: `first` begins a block of scales.
kernels::StoredMatrix rows_of(const kernels::StoredMatrix& matrix, std::int64_t first, std::int64_t num_rows) {
  kernels::StoredMatrix rows = matrix;
  rows.num_rows = num_rows;
  rows.data += first * device::row_bytes(matrix.dtype, matrix.num_cols);
  if (matrix.scales.data != nullptr) {
    const std::int64_t blocks_per_row = (matrix.num_cols + matrix.scales.block_cols - 1) / matrix.scales.block_cols;
    rows.scales.data += first / matrix.scales.block_rows * device::row_bytes(matrix.scales.dtype, blocks_per_row);
  }
  return rows;
}

}  // namespace

WeightReader::WeightReader(const weights::Checkpoint& checkpoint, device::Stream& stream,
                           std::function<void(double)> progress, CanonicalName canonical_name)
    : checkpoint_(checkpoint), stream_(stream), progress_(std::move(progress)), canonical_name_(canonical_name) {
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    bytes_total_ += tensor.num_bytes;
    if (canonical_name_ == nullptr) continue;
    const auto [place, is_new] = by_canonical_name_.emplace(canonical(tensor.name), &tensor);
    if (!is_new) {
      problems_.push_back(fmt::format("tensors '{}' and '{}' are one by their names",
                                      weights::printable(place->second->name), weights::printable(tensor.name)));
    }
  }
}

std::string WeightReader::canonical(std::string_view stored) const {
  return canonical_name_ == nullptr ? std::string(stored) : canonical_name_(stored);
}

const weights::TensorInfo* WeightReader::lookup(std::string_view tensor) const {
  if (canonical_name_ == nullptr) return checkpoint_.find(tensor);
  const auto place = by_canonical_name_.find(tensor);
  return place == by_canonical_name_.end() ? nullptr : place->second;
}

const weights::TensorInfo* WeightReader::find(const std::string& tensor, std::span<const std::int64_t> shape) {
  const weights::TensorInfo* found = lookup(tensor);
  if (found == nullptr) {
    problems_.push_back(fmt::format("tensor '{}' of shape [{}] is missing", tensor, fmt::join(shape, ", ")));
    return nullptr;
  }
  used_.insert(found->name);
  if (!std::ranges::equal(found->shape, shape)) {
    problems_.push_back(fmt::format("tensor '{}' has shape [{}], needed [{}]", found->name,
                                    fmt::join(found->shape, ", "), fmt::join(shape, ", ")));
    return nullptr;
  }
  return found;
}

std::optional<WeightReader::Stored> WeightReader::stored(const std::string& tensor,
                                                         std::span<const std::int64_t> shape) {
  const weights::TensorInfo* info = lookup(tensor);
  const bool is_fp4 = info != nullptr && info->dtype == DType::kI8 && shape.size() == 2 && shape[1] % 2 == 0;
  std::vector<std::int64_t> stored_shape(shape.begin(), shape.end());
  if (is_fp4) stored_shape[1] /= 2;
  const weights::TensorInfo* found = find(tensor, stored_shape);
  if (found == nullptr) return std::nullopt;

  Stored result{.tensor = found};
  const std::int64_t num_cols = shape.empty() ? 1 : shape.back();
  const std::int64_t num_rows =
      shape.empty() ? 1 : std::reduce(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies());
  result.matrix = {is_fp4 ? DType::kF4E2M1 : found->dtype, checkpoint_.bytes(*found).data(), num_rows, num_cols};
  if ((is_fp4 || found->dtype == DType::kF8E4M3) && !add_scales(tensor, result)) return std::nullopt;
  return result;
}

bool WeightReader::add_scales(const std::string& tensor, Stored& stored) {
  const std::array<std::string, 2> names = scale_names(tensor);
  for (const std::string& name : names) {
    if (stored.scale_tensor == nullptr) stored.scale_tensor = lookup(name);
  }
  if (stored.scale_tensor == nullptr) {
    problems_.push_back(fmt::format("tensor '{}' is {} without scales, needed '{}' or '{}'", stored.tensor->name,
                                    device::dtype_name(stored.tensor->dtype), names[0], names[1]));
    return false;
  }
  used_.insert(stored.scale_tensor->name);
  Result<weights::BlockScales> scales = weights::read_block_scales(checkpoint_, *stored.tensor, *stored.scale_tensor);
  if (!scales) {
    problems_.push_back(scales.error().message);
    return false;
  }
  const bool are_bytes = scales->values.empty();
  stored.scale_values = std::move(scales->values);
  stored.matrix.scales = {
      .dtype = are_bytes ? DType::kF8E8M0 : DType::kF32,
      .data = are_bytes ? scales->bytes.data() : std::as_bytes(std::span(stored.scale_values)).data(),
      .block_rows = scales->block.rows,
      .block_cols = scales->block.cols};
  return true;
}

void WeightReader::done(const Stored& stored) {
  if (stored.scale_tensor != nullptr) done(*stored.scale_tensor, 0);
  done(*stored.tensor, stored.matrix.num_rows * stored.matrix.num_cols);
}

void WeightReader::done(const weights::TensorInfo& tensor, std::int64_t num_parameters) {
  checkpoint_.release(tensor);
  num_parameters_ += num_parameters;
  bytes_done_ += tensor.num_bytes;
  if (progress_) progress_(static_cast<double>(bytes_done_) / static_cast<double>(bytes_total_));
}

kernels::LinearWeight WeightReader::pack(std::span<const kernels::StoredMatrix> matrices,
                                         std::span<const MatrixPart> parts, kernels::RowOrder order) {
  std::vector<std::span<const std::int32_t>> row_maps;
  for (const MatrixPart& part : parts) row_maps.push_back(part.row_map);
  Result<kernels::LinearWeight> packed = kernels::LinearWeight::pack(stream_, matrices, order, row_maps);
  if (packed) {
    packed_bytes_ += static_cast<std::int64_t>(packed->num_bytes());
    return std::move(*packed);
  }
  problems_.push_back(fmt::format("tensor '{}.weight': {}", parts.front().name, packed.error().message));
  code_ = packed.error().code;
  return {};
}

kernels::LinearWeight WeightReader::linear(const std::string& name, std::int64_t num_rows, std::int64_t num_cols) {
  return linear({{name, num_rows}}, num_cols);
}

kernels::LinearWeight WeightReader::linear(std::initializer_list<MatrixPart> parts, std::int64_t num_cols,
                                           kernels::RowOrder order) {
  return read({parts.begin(), parts.size()}, num_cols, order);
}

kernels::LinearWeight WeightReader::read(std::span<const MatrixPart> parts, std::int64_t num_cols,
                                         kernels::RowOrder order) {
  std::vector<Stored> found;
  for (const MatrixPart& part : parts) {
    const std::int64_t shape[] = {part.num_rows, num_cols};
    if (std::optional<Stored> one = stored(part.name + ".weight", shape)) found.push_back(std::move(*one));
  }
  if (!problems_.empty()) return {};

  std::vector<kernels::StoredMatrix> matrices;
  for (const Stored& one : found) matrices.push_back(one.matrix);
  kernels::LinearWeight weight = pack(matrices, parts, order);
  for (const Stored& one : found) done(one);
  return weight;
}

std::vector<kernels::LinearWeight> WeightReader::row_groups(const std::string& name, std::int64_t num_groups,
                                                            std::int64_t rows_per_group, std::int64_t num_cols) {
  const std::int64_t shape[] = {num_groups * rows_per_group, num_cols};
  const std::optional<Stored> whole = stored(name + ".weight", shape);
  if (!whole) return {};
  const kernels::BlockScales& scales = whole->matrix.scales;
  if (scales.data != nullptr && rows_per_group % scales.block_rows != 0) {
    problems_.push_back(
        fmt::format("tensor '{}' has a scale per {} rows, needed a number that divides its groups of {}",
                    whole->tensor->name, scales.block_rows, rows_per_group));
  }
  std::vector<kernels::LinearWeight> groups;
  const MatrixPart part{name, rows_per_group};
  for (std::int64_t group = 0; group < num_groups && problems_.empty(); ++group) {
    const kernels::StoredMatrix rows = rows_of(whole->matrix, group * rows_per_group, rows_per_group);
    groups.push_back(pack({&rows, 1}, {&part, 1}, kernels::RowOrder::kConcatenate));
  }
  done(*whole);
  return groups;
}

std::vector<kernels::LinearWeight> WeightReader::stacked_experts(std::initializer_list<MatrixPart> parts,
                                                                 std::int32_t num_experts, std::int64_t num_cols,
                                                                 kernels::RowOrder order) {
  std::vector<const weights::TensorInfo*> tensors;
  for (const MatrixPart& part : parts) {
    const std::int64_t shape[] = {num_experts, part.num_rows, num_cols};
    const weights::TensorInfo* tensor = find(part.name + ".weight", shape);
    if (tensor == nullptr) continue;
    if (tensor->dtype == DType::kF8E4M3) {
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
      const kernels::StoredMatrix all{tensor->dtype, checkpoint_.bytes(*tensor).data(), num_experts * num_rows,
                                      num_cols};
      matrices.push_back(rows_of(all, expert * num_rows, num_rows));
    }
    experts.push_back(pack(matrices, {parts.begin(), parts.size()}, order));
  }
  for (const weights::TensorInfo* tensor : tensors) done(*tensor, tensor->num_elements());
  return experts;
}

std::vector<kernels::LinearWeight> WeightReader::indexed_experts(const std::string& prefix,
                                                                 std::initializer_list<MatrixPart> parts,
                                                                 const ExpertRange& range, std::int64_t num_cols,
                                                                 kernels::RowOrder order) {
  std::vector<kernels::LinearWeight> experts;
  for (std::int32_t expert = 0; expert < range.num_experts; ++expert) {
    const std::string expert_prefix = fmt::format("{}.{}.", prefix, expert);
    if (expert < range.first || expert >= range.last) {
      ignore(expert_prefix);
      continue;
    }
    std::vector<MatrixPart> named(parts);
    for (MatrixPart& part : named) part.name.insert(0, expert_prefix);
    experts.push_back(read(named, num_cols, order));
  }
  return experts;
}

std::vector<float> WeightReader::floats(const std::string& tensor, std::initializer_list<std::int64_t> shape) {
  const std::optional<Stored> found = stored(tensor, {shape.begin(), shape.size()});
  if (!found) return {};
  const kernels::StoredMatrix& matrix = found->matrix;
  if (!is_plain_float(matrix.dtype) && matrix.scales.data == nullptr) {
    problems_.push_back(fmt::format("tensor '{}' has type {}, needed f32, f16 or bf16", found->tensor->name,
                                    device::dtype_name(matrix.dtype)));
    return {};
  }
  std::vector<float> values(static_cast<std::size_t>(matrix.num_rows * matrix.num_cols));
  kernels::dequantize_rows(matrix, 0, matrix.num_rows, values.data());
  packed_bytes_ += static_cast<std::int64_t>(values.size() * sizeof(float));
  done(*found);
  return values;
}

std::vector<std::int32_t> WeightReader::integers(const std::string& tensor, std::initializer_list<std::int64_t> shape,
                                                 std::int32_t limit) {
  const weights::TensorInfo* found = find(tensor, {shape.begin(), shape.size()});
  if (found == nullptr) return {};
  if (found->dtype != DType::kI32 && found->dtype != DType::kI64) {
    problems_.push_back(
        fmt::format("tensor '{}' has type {}, needed i32 or i64", found->name, device::dtype_name(found->dtype)));
    return {};
  }
  const std::byte* bytes = checkpoint_.bytes(*found).data();
  std::vector<std::int32_t> values(static_cast<std::size_t>(found->num_elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t value =
        found->dtype == DType::kI32 ? load<std::int32_t>(bytes, i) : load<std::int64_t>(bytes, i);
    if (value < 0 || value >= limit) {
      problems_.push_back(
          fmt::format("tensor '{}' holds {} at [{}], needed numbers from 0 to {}", found->name, value, i, limit - 1));
      return {};
    }
    values[i] = static_cast<std::int32_t>(value);
  }
  packed_bytes_ += static_cast<std::int64_t>(values.size() * sizeof(std::int32_t));
  done(*found, found->num_elements());
  return values;
}

std::span<const std::byte> WeightReader::mapped(const std::string& tensor, DType dtype,
                                                std::initializer_list<std::int64_t> shape) {
  const weights::TensorInfo* found = find(tensor, {shape.begin(), shape.size()});
  if (found == nullptr) return {};
  if (found->dtype != dtype) {
    problems_.push_back(fmt::format("tensor '{}' has type {}, needed {}", found->name, device::dtype_name(found->dtype),
                                    device::dtype_name(dtype)));
    return {};
  }
  done(*found, dtype == DType::kF8E8M0 ? 0 : found->num_elements());
  return checkpoint_.bytes(*found);
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

bool WeightReader::is_ignored(std::string_view tensor) const {
  const std::string name = canonical(tensor);
  if (ignored_.contains(name)) return true;
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (ignored_.contains(name.substr(0, dot + 1))) return true;
  }
  return false;
}

std::vector<std::string> WeightReader::unused() const {
  std::vector<std::string> names;
  for (const weights::TensorInfo& tensor : checkpoint_.tensors()) {
    if (!used_.contains(tensor.name) && !is_ignored(tensor.name)) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace thalweg::layers
