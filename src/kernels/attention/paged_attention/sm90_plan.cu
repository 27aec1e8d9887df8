// One block makes a step's plan. Rows are counted and placed by a prefix sum over 1024 of them at a time; tiles are
// then ordered by counting for each how many come before it, since a persistent grid wants its costly entries first.
#include "device/cuda/runtime.h"
#include "kernels/attention/paged_attention/sm90_device.h"

namespace thalweg::kernels::attention {
namespace {

constexpr int kThreads = 1024;

/// Sum of `value` over the threads before this one; the sum over all is added to `total`, which threads agree on.
__device__ std::int32_t scan(std::int32_t value, std::int32_t& total, std::int32_t* warp_sums) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  std::int32_t inclusive = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::int32_t before = __shfl_up_sync(0xffffffffU, inclusive, distance);
    if (lane >= distance) inclusive += before;
  }
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  std::int32_t result = total + inclusive - value;
  for (int other = 0; other < kThreads / 32; ++other) {
    if (other < warp) result += warp_sums[other];
    total += warp_sums[other];
  }
  __syncthreads();
  return result;
}

struct RowWork {
  std::int32_t first_partition = 0;
  std::int32_t end_partition = 0;
  std::int32_t num_tiles = 0;
};

__device__ RowWork row_work(const PlanAttentionSm90Params& params, std::int32_t row, std::int32_t queries_per_tile) {
  RowWork work;
  const std::int32_t num_queries = params.batch.cu_seqlens[row + 1] - params.batch.cu_seqlens[row];
  if (num_queries == 0) return work;
  if (num_queries * (params.num_heads / params.num_kv_heads) > params.max_few_rows) {
    work.num_tiles = (num_queries + queries_per_tile - 1) / queries_per_tile;
    return work;
  }
  const std::int32_t end = params.batch.context_lens[row];
  work.first_partition = first_key(end - num_queries, params.window) / kPartitionTokens;
  work.end_partition = (end + kPartitionTokens - 1) / kPartitionTokens;
  return work;
}

__device__ void place_partitions(const PlanAttentionSm90Params& params, std::int32_t row, const RowWork& work,
                                 std::int32_t place) {
  const std::int32_t first_token = params.batch.cu_seqlens[row];
  const std::int32_t num_queries = params.batch.cu_seqlens[row + 1] - first_token;
  auto* partitions = reinterpret_cast<PartitionEntry*>(params.plan.partitions);
  for (std::int32_t i = work.first_partition; i < work.end_partition && place < params.plan.max_partitions;
       ++i, ++place) {
    partitions[place] = {row,         i,           work.first_partition,          work.end_partition,
                         first_token, num_queries, params.batch.context_lens[row]};
  }
}

__device__ void draft_tiles(const PlanAttentionSm90Params& params, std::int32_t row, std::int32_t place,
                            std::int32_t queries_per_tile) {
  const std::int32_t first_token = params.batch.cu_seqlens[row];
  const std::int32_t num_queries = params.batch.cu_seqlens[row + 1] - first_token;
  const std::int32_t first_position = params.batch.context_lens[row] - num_queries;
  auto* drafts = reinterpret_cast<TileEntry*>(params.plan.tile_drafts);
  for (std::int32_t first = 0; first < num_queries && place < params.plan.max_tiles;
       first += queries_per_tile, ++place) {
    const std::int32_t count = min(queries_per_tile, num_queries - first);
    drafts[place] = {row, first_token + first, count, first_position + first + count};
  }
}

__device__ std::int32_t num_keys(const TileEntry& tile, std::int32_t window) {
  return tile.end - first_key(tile.end - tile.num_queries, window);
}

__global__ void __launch_bounds__(kThreads) plan_attention(const __grid_constant__ PlanAttentionSm90Params params) {
  __shared__ std::int32_t warp_sums[kThreads / 32];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const PagedBatchSm90& batch = params.batch;
  const AttentionPlanSm90& plan = params.plan;
  const std::int32_t queries_per_tile = tile_rows(params.head_dim) / (params.num_heads / params.num_kv_heads);

  std::int32_t num_partitions = 0;
  std::int32_t num_tiles = 0;
  for (std::int32_t start = 0; start < batch.num_rows; start += kThreads) {
    const std::int32_t row = start + thread;
    const RowWork work = row < batch.num_rows ? row_work(params, row, queries_per_tile) : RowWork();
    std::int32_t place = scan(work.end_partition - work.first_partition, num_partitions, warp_sums);
    if (work.end_partition > 0) place_partitions(params, row, work, place);
    place = scan(work.num_tiles, num_tiles, warp_sums);
    if (work.num_tiles > 0) draft_tiles(params, row, place, queries_per_tile);
  }
  num_partitions = min(num_partitions, plan.max_partitions);
  num_tiles = min(num_tiles, plan.max_tiles);
  if (thread == 0) {
    plan.counts[0] = num_partitions;
    plan.counts[1] = num_tiles;
  }
  for (std::int32_t i = thread; i < batch.num_rows * params.num_kv_heads; i += kThreads) plan.arrivals[i] = 0;

  __syncthreads();
  const auto* drafts = reinterpret_cast<const TileEntry*>(plan.tile_drafts);
  for (std::int32_t i = thread; i < num_tiles; i += kThreads) {
    const TileEntry tile = drafts[i];
    const std::int32_t cost = num_keys(tile, params.window);
    std::int32_t place = 0;
    for (std::int32_t other = 0; other < num_tiles; ++other) {
      const std::int32_t other_cost = num_keys(drafts[other], params.window);
      place += static_cast<std::int32_t>(other_cost > cost || (other_cost == cost && other < i));
    }
    reinterpret_cast<TileEntry*>(plan.tiles)[place] = tile;
  }

  for (std::int32_t token = thread; token < batch.num_tokens; token += kThreads) {
    std::int32_t low = 0;
    std::int32_t high = batch.num_rows;  // the answer's range: rows [low, high), none if the token is after the last
    if (token >= batch.cu_seqlens[batch.num_rows]) low = high;
    while (high - low > 1) {
      const std::int32_t middle = (low + high) / 2;
      (batch.cu_seqlens[middle] <= token ? low : high) = middle;
    }
    plan.token_rows[token] = low < batch.num_rows ? low : -1;
  }
}

}  // namespace

device::CudaStatus plan_attention_sm90(CUstream_st* stream, const PlanAttentionSm90Params& params) {
  plan_attention<<<1, kThreads, 0, stream>>>(params);
  return device::launched("plan_attention");
}

}  // namespace thalweg::kernels::attention
