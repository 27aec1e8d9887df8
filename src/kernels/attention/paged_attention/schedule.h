// Cuts a batch into tasks. Decides who computes what and in which order, never how: any schedule gives the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/paged_attention.h"

namespace thalweg::kernels::attention {

/// Consecutive queries of one row that are computed together.
struct Span {
  std::int32_t row = 0;
  std::int32_t first_token = 0;  // in the batch
  std::int32_t first_position = 0;
  std::int32_t num_queries = 0;
  std::int32_t first_partition = 0;  // of the keys they see
  std::int32_t end_partition = 0;
  bool split = false;                    // a task for each partition
  std::int64_t first_partial_query = 0;  // of a split one: queries times partitions of the split ones before it

  std::int32_t num_partitions() const { return end_partition - first_partition; }
};

struct Task {
  std::int32_t span = 0;
  std::int32_t kv_head = 0;
  std::int32_t partition = 0;
};

struct Schedule {
  std::vector<Span> spans;               // costly ones first
  std::vector<std::int64_t> first_task;  // [num_spans + 1]
  std::int32_t num_kv_heads = 0;
  std::int64_t num_partial_queries = 0;
  std::int64_t num_products = 0;  // queries times keys times heads: all work, in units of head_dim

  std::int64_t num_tasks() const { return first_task.back(); }
  Task task(std::int64_t index) const;
};

Schedule make_schedule(const PagedBatch& batch, std::int32_t window, std::int32_t num_kv_heads,
                       std::int32_t num_group_heads, int num_threads);

}  // namespace thalweg::kernels::attention
