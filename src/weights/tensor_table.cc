#include "weights/tensor_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "weights/printable.h"

namespace thalweg::weights {

Result<TensorTable> TensorTable::create(std::vector<TensorInfo> tensors, std::span<const std::string> files) {
  CHECK_LE(tensors.size(), UINT32_MAX);
  TensorTable table;
  table.tensors_ = std::move(tensors);
  table.by_name_.resize(table.tensors_.size());
  std::iota(table.by_name_.begin(), table.by_name_.end(), 0u);
  const auto name = [&](std::uint32_t index) -> const std::string& { return table.tensors_[index].name; };
  std::ranges::sort(table.by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(table.by_name_, {}, name);
  if (twice != table.by_name_.end()) {
    const TensorInfo& first = table.tensors_[*twice];
    const TensorInfo& second = table.tensors_[*std::next(twice)];
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' appears twice, in '{}' and in '{}'", printable(first.name),
                            files[static_cast<std::size_t>(first.file)], files[static_cast<std::size_t>(second.file)]));
  }
  return table;
}

const TensorInfo* TensorTable::find(std::string_view name) const {
  const auto place = std::ranges::lower_bound(
      by_name_, name, {}, [&](std::uint32_t index) { return std::string_view(tensors_[index].name); });
  if (place == by_name_.end() || tensors_[*place].name != name) return nullptr;
  return &tensors_[*place];
}

}  // namespace thalweg::weights
