// Reads a checkpoint's tensors into the forms that layers keep them in.
//
// Problems are collected, not returned one by one: loading code names tensor after tensor without branches, and the
// user hears of every tensor that is missing or misshapen at once. After the first problem nothing is packed any more.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "device/stream.h"
#include "kernels/linear/linear.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::layers {

/// A matrix of the checkpoint that becomes part of a packed weight. The tensor's name is `name` + ".weight".
struct MatrixPart {
  std::string name;
  std::int64_t num_rows = 0;
  std::span<const std::int32_t> row_map = {};  // row i of the result is row row_map[i] of the tensor; empty: identity
};

class WeightReader {
 public:
  /// `progress` is told the share of the file's bytes read so far.
  WeightReader(const weights::Checkpoint& checkpoint, device::Stream& stream, std::function<void(double)> progress);

  const weights::Checkpoint& checkpoint() const { return checkpoint_; }
  bool has(std::string_view tensor) const { return checkpoint_.find(tensor) != nullptr; }

  /// One matrix, or several of equal width packed into one.
  kernels::LinearWeight linear(const std::string& name, std::int64_t num_rows, std::int64_t num_cols);
  kernels::LinearWeight linear(std::initializer_list<MatrixPart> parts, std::int64_t num_cols,
                               kernels::RowOrder order = kernels::RowOrder::kConcatenate);

  /// Experts of one layer whose matrices lie one after the other in 3-D tensors, [num_experts, num_rows, num_cols].
  std::vector<kernels::LinearWeight> stacked_experts(std::initializer_list<MatrixPart> parts, std::int32_t num_experts,
                                                     std::int64_t num_cols, kernels::RowOrder order);

  /// A float tensor of one dimension as fp32; `tensor` is its whole name.
  std::vector<float> vector(const std::string& tensor, std::int64_t size);
  /// Biases of the parts of a packed weight, arranged as its rows are.
  std::vector<float> biases(std::initializer_list<MatrixPart> parts,
                            kernels::RowOrder order = kernels::RowOrder::kConcatenate);

  /// What went wrong: every missing or misshapen tensor that was asked for.
  Status status() const;
  /// Tensors of the checkpoint that nobody asked for, in file order.
  std::vector<std::string> unused() const;
  /// Of the tensors read so far.
  std::int64_t num_parameters() const { return num_parameters_; }
  /// Memory that their packed form takes.
  std::int64_t packed_bytes() const { return packed_bytes_; }

 private:
  const weights::TensorInfo* find(const std::string& tensor, std::span<const std::int64_t> shape);
  std::vector<float> block_scales(const weights::TensorInfo& tensor);
  kernels::LinearWeight pack(std::span<const kernels::StoredMatrix> matrices, std::initializer_list<MatrixPart> parts,
                             kernels::RowOrder order);
  void done(const weights::TensorInfo& tensor);

  const weights::Checkpoint& checkpoint_;
  device::Stream& stream_;
  std::function<void(double)> progress_;
  std::vector<std::string> problems_;
  ErrorCode code_ = ErrorCode::kInvalidArgument;
  std::unordered_set<std::string> used_;
  std::uint64_t bytes_total_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::int64_t num_parameters_ = 0;
  std::int64_t packed_bytes_ = 0;
};

}  // namespace thalweg::layers
