// Where an entry of a paged cache lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "kernels/attention/sparse_attention.h"

namespace thalweg::kernels {

/// `block_table` is one row's, [max_blocks].
inline const std::byte* entry_at(const PagedEntries& entries, const std::int32_t* block_table, std::int32_t max_blocks,
                                 std::int32_t entry) {
  const std::int32_t block = entry / entries.entries_per_block;
  CHECK_LT(block, max_blocks);
  return entries.base + block_table[block] * entries.block_stride +
         entry % entries.entries_per_block * entries.entry_bytes;
}

}  // namespace thalweg::kernels
