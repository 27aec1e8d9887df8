#include "layers/token_rows.h"

#include <cstring>

#include "base/check.h"

namespace thalweg::layers {

void TokenRows::keep(std::span<const std::int32_t> tokens, std::initializer_list<Matrix> matrices) {
  if (static_cast<std::int64_t>(tokens.size()) == count()) return;  // rising and distinct: all of them
  positions_.clear();
  cu_seqlens_.assign(1, 0);
  std::size_t kept = 0;
  for (std::size_t row = 0; row < batch_.context_lens.size(); ++row) {
    for (; kept < tokens.size() && tokens[kept] < batch_.cu_seqlens[row + 1]; ++kept) {
      positions_.push_back(batch_.positions[static_cast<std::size_t>(tokens[kept])]);
    }
    cu_seqlens_.push_back(static_cast<std::int32_t>(kept));
  }
  CHECK_EQ(kept, tokens.size());
  for (const Matrix& matrix : matrices) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      // tokens[i] >= i, so a row moves forward or stays; rows not yet moved are never overwritten.
      std::memmove(matrix.rows + static_cast<std::int64_t>(i) * matrix.width, matrix.rows + tokens[i] * matrix.width,
                   static_cast<std::size_t>(matrix.width) * sizeof(float));
    }
  }
  batch_.positions = positions_;
  batch_.cu_seqlens = cu_seqlens_;
}

}  // namespace thalweg::layers
