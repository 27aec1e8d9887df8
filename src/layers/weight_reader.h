// Reads a checkpoint's tensors into the forms that layers keep them in.
//
// Problems are collected, not returned one by one: loading code names tensor after tensor without branches, and the
// user hears of every tensor that is missing or misshapen at once. After the first problem nothing is packed any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
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

/// Experts [first, last) of a layer's num_experts: those that this process runs.
struct ExpertRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int32_t num_experts = 0;
};

/// Matrices may be plain floats, GGUF's block types, FP8 with a scale per block ("<name>.scale", or
/// "<name>.weight_scale_inv") or FP4: I8 of half the width with "<name>.scale".
class WeightReader {
 public:
  /// The name under which loading code asks for a tensor, from that in the file.
  using CanonicalName = std::string (*)(std::string_view stored);

  /// `progress` is told the share of the file's bytes read so far. Without `canonical_name` names are the file's.
  WeightReader(const weights::Checkpoint& checkpoint, device::Stream& stream, std::function<void(double)> progress,
               CanonicalName canonical_name = nullptr);

  const weights::Checkpoint& checkpoint() const { return checkpoint_; }
  bool has(std::string_view tensor) const { return lookup(tensor) != nullptr; }

  /// One matrix, or several of equal width packed into one.
  kernels::LinearWeight linear(const std::string& name, std::int64_t num_rows, std::int64_t num_cols);
  kernels::LinearWeight linear(std::initializer_list<MatrixPart> parts, std::int64_t num_cols,
                               kernels::RowOrder order = kernels::RowOrder::kConcatenate);
  /// One matrix of num_groups * rows_per_group rows, each group packed on its own.
  std::vector<kernels::LinearWeight> row_groups(const std::string& name, std::int64_t num_groups,
                                                std::int64_t rows_per_group, std::int64_t num_cols);

  /// Experts of one layer whose matrices lie one after the other in 3-D tensors, [num_experts, num_rows, num_cols].
  std::vector<kernels::LinearWeight> stacked_experts(std::initializer_list<MatrixPart> parts, std::int32_t num_experts,
                                                     std::int64_t num_cols, kernels::RowOrder order);
  /// Experts of one layer with tensors of their own, "<prefix>.<expert>.<part's name>.weight"; one weight per expert of
  /// the range. The others' tensors are not looked at and count as left out on purpose.
  std::vector<kernels::LinearWeight> indexed_experts(const std::string& prefix, std::initializer_list<MatrixPart> parts,
                                                     const ExpertRange& range, std::int64_t num_cols,
                                                     kernels::RowOrder order);

  /// A float tensor as fp32; `tensor` is its whole name.
  std::vector<float> floats(const std::string& tensor, std::initializer_list<std::int64_t> shape);
  std::vector<float> vector(const std::string& tensor, std::int64_t size) { return floats(tensor, {size}); }
  /// An I32 or I64 tensor whose numbers must lie in [0, limit).
  std::vector<std::int32_t> integers(const std::string& tensor, std::initializer_list<std::int64_t> shape,
                                     std::int32_t limit);
  /// Biases of the parts of a packed weight, arranged as its rows are.
  std::vector<float> biases(std::initializer_list<MatrixPart> parts,
                            kernels::RowOrder order = kernels::RowOrder::kConcatenate);

  /// A tensor where it lies in the file, for tables too large to be packed; it lives as long as the checkpoint or
  /// what its hold() answers. Empty
  /// after a problem.
  std::span<const std::byte> mapped(const std::string& tensor, device::DType dtype,
                                    std::initializer_list<std::int64_t> shape);

  /// Tensors that are left out on purpose: a whole name, or a beginning that ends with a dot.
  void ignore(std::string name) { ignored_.insert(std::move(name)); }

  /// What went wrong: every missing or misshapen tensor that was asked for.
  Status status() const;
  /// Tensors of the checkpoint that nobody asked for or ignored, in file order and the file's names.
  std::vector<std::string> unused() const;
  /// Of the tensors read so far; scales are none.
  std::int64_t num_parameters() const { return num_parameters_; }
  /// Memory that their packed form takes.
  std::int64_t packed_bytes() const { return packed_bytes_; }

 private:
  /// A tensor as a matrix, with what it needs to be dequantised. The scales' floats are owned here.
  struct Stored {
    const weights::TensorInfo* tensor = nullptr;
    const weights::TensorInfo* scale_tensor = nullptr;  // null for types without
    std::vector<float> scale_values;
    kernels::StoredMatrix matrix;
  };

  std::string canonical(std::string_view stored) const;
  const weights::TensorInfo* lookup(std::string_view tensor) const;
  /// The tensor if it is there and of that shape.
  const weights::TensorInfo* find(const std::string& tensor, std::span<const std::int64_t> shape);
  std::optional<Stored> stored(const std::string& tensor, std::span<const std::int64_t> shape);
  bool add_scales(const std::string& tensor, Stored& stored);
  kernels::LinearWeight read(std::span<const MatrixPart> parts, std::int64_t num_cols, kernels::RowOrder order);
  kernels::LinearWeight pack(std::span<const kernels::StoredMatrix> matrices, std::span<const MatrixPart> parts,
                             kernels::RowOrder order);
  bool is_ignored(std::string_view tensor) const;
  void done(const Stored& stored);
  void done(const weights::TensorInfo& tensor, std::int64_t num_parameters);

  const weights::Checkpoint& checkpoint_;
  device::Stream& stream_;
  std::function<void(double)> progress_;
  CanonicalName canonical_name_;
  std::map<std::string, const weights::TensorInfo*, std::less<>> by_canonical_name_;  // empty without canonical_name_
  std::vector<std::string> problems_;
  ErrorCode code_ = ErrorCode::kInvalidArgument;
  std::unordered_set<std::string> used_;  // names of the file
  std::unordered_set<std::string> ignored_;
  std::uint64_t bytes_total_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::int64_t num_parameters_ = 0;
  std::int64_t packed_bytes_ = 0;
};

}  // namespace thalweg::layers
