#include "kernels/attention/paged_attention/schedule.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {
namespace {

// Enough tasks for each thread that the last ones to finish are not far apart.
constexpr std::int64_t kTasksPerThread = 4;

/// A power of two, so that spans cut at its multiples lie in one tile of keys each: only one tile per span is ragged.
/// Smaller when few queries would leave threads without work.
std::int32_t queries_per_span(std::int64_t num_queries, std::int32_t num_kv_heads, std::int32_t num_group_heads,
                              int num_threads) {
  const std::int32_t most = std::max(1, std::min(kTile, kMaxRows / num_group_heads));
  auto size = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(most)));
  while (size > 4 && num_queries * num_kv_heads / size < num_threads * kTasksPerThread) size /= 2;
  return size;
}

std::int64_t num_keys(const Span& span, std::int32_t window) {
  const std::int32_t first = window > 0 ? std::max(0, span.first_position - window + 1) : 0;
  return span.first_position + span.num_queries - first;
}

}  // namespace

Task Schedule::task(std::int64_t index) const {
  const auto span = static_cast<std::int32_t>(std::ranges::upper_bound(first_task, index) - first_task.begin() - 1);
  const std::int64_t within = index - first_task[span];
  return {.span = span,
          .kv_head = static_cast<std::int32_t>(within % num_kv_heads),
          .partition = spans[span].first_partition + static_cast<std::int32_t>(within / num_kv_heads)};
}

Schedule make_schedule(const PagedBatch& batch, std::int32_t window, std::int32_t num_kv_heads,
                       std::int32_t num_group_heads, int num_threads) {
  Schedule schedule{.num_kv_heads = num_kv_heads};
  const std::int32_t span_size = queries_per_span(batch.cu_seqlens.back(), num_kv_heads, num_group_heads, num_threads);
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(batch.context_lens.size()); ++row) {
    const std::int32_t row_end = batch.cu_seqlens[row + 1];
    for (std::int32_t token = batch.cu_seqlens[row]; token < row_end;) {
      Span span{.row = row, .first_token = token, .first_position = batch.positions[token]};
      span.num_queries = std::min(row_end - token, span_size - span.first_position % span_size);
      const std::int32_t end_key = span.first_position + span.num_queries;
      span.first_partition = static_cast<std::int32_t>((end_key - num_keys(span, window)) / kPartition);
      span.end_partition = (end_key + kPartition - 1) / kPartition;
      schedule.num_products += num_keys(span, window) * span.num_queries * num_kv_heads * num_group_heads;
      schedule.spans.push_back(span);
      token += span.num_queries;
    }
  }

  const auto cost = [&](const Span& span) { return num_keys(span, window) * span.num_queries; };
  const auto costs_more = [&](const Span& a, const Span& b) { return cost(a) > cost(b); };
  if (!std::ranges::is_sorted(schedule.spans, costs_more)) std::ranges::sort(schedule.spans, costs_more);

  std::int64_t total_cost = 0;
  for (const Span& span : schedule.spans) total_cost += cost(span) * num_kv_heads;
  const std::int64_t fair_cost = num_threads > 1 ? total_cost / (num_threads * kTasksPerThread) : total_cost;
  schedule.first_task.reserve(schedule.spans.size() + 1);
  schedule.first_task.push_back(0);
  for (Span& span : schedule.spans) {
    span.split = span.num_partitions() > 1 && cost(span) > fair_cost;
    if (span.split) {
      span.first_partial_query = schedule.num_partial_queries;
      schedule.num_partial_queries += std::int64_t{span.num_partitions()} * span.num_queries;
    }
    schedule.first_task.push_back(schedule.first_task.back() +
                                  std::int64_t{num_kv_heads} * (span.split ? span.num_partitions() : 1));
  }
  return schedule;
}

}  // namespace thalweg::kernels::attention
