// A step of the GPU's attention with all that it needs on the device, for test and bench.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.h"
#include "device/cuda/arena.h"
#include "device/cuda/stream.h"
#include "kernels/attention/paged_attention/cases.h"
#include "kernels/attention/paged_attention/sm90.h"
#include "kernels/attention/paged_attention/sm90_layout.h"
#include "kernels/cuda_launch.h"

namespace thalweg::kernels::attention {

/// The blocks of each row, in an order that has nothing to do with their positions, and how many there are in all.
struct BlockTables {
  std::vector<std::vector<std::int32_t>> rows;
  std::int32_t num_blocks = 0;

  BlockTables(const Case& test, std::uint32_t seed) {
    const auto blocks_of = [&](const RowShape& row) {
      return (row.context_len + test.block_size - 1) / test.block_size;
    };
    for (const RowShape& row : test.rows) num_blocks += blocks_of(row);
    std::vector<std::int32_t> ids(num_blocks);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
    auto next = ids.begin();
    for (const RowShape& row : test.rows) {
      rows.emplace_back(next, next + blocks_of(row));
      next += blocks_of(row);
    }
  }
};

inline std::int64_t cache_bytes(const Case& test, std::int32_t num_blocks) {
  return num_blocks * kv_block_elements(test.num_kv_heads, test.head_dim, test.block_size) * 2;
}

inline PagedKvSm90 cache_view(const Case& test, void* base) {
  return {.base = base,
          .block_stride = kv_block_elements(test.num_kv_heads, test.head_dim, test.block_size),
          .num_kv_heads = test.num_kv_heads,
          .head_dim = test.head_dim,
          .block_size = test.block_size};
}

/// `test.rows` are the rows of this step; the first blocks of `tables` are theirs.
class StepSm90 {
 public:
  StepSm90(device::CudaStream& stream, device::CudaArena& arena, const Case& test, const BlockTables& tables,
           std::int32_t few_rows = kMaxFewRows)
      : stream_(stream), arena_(arena), test_(test), max_few_rows_(few_rows) {
    const std::int32_t group = test.num_heads / test.num_kv_heads;
    std::vector<std::int32_t> context_lens;
    for (const RowShape& row : test.rows) {
      cu_seqlens_.push_back(cu_seqlens_.back() + row.num_new);
      context_lens.push_back(row.context_len);
      plan_.max_partitions += (row.context_len + kPartitionTokens - 1) / kPartitionTokens;
      plan_.max_tiles += row.num_new / (tile_rows(test.head_dim) / group) + 1;
      if (row.num_new * group > max_few_rows_) {
        has_tiles_ = true;
      } else {
        max_few_queries_ = std::max(max_few_queries_, row.num_new);
      }
    }
    const auto num_rows = static_cast<std::int32_t>(test.rows.size());
    batch_ = {.cu_seqlens = put(cu_seqlens_),
              .context_lens = put(context_lens),
              .block_tables = put(flat(tables)),
              .max_blocks_per_row = max_blocks_,
              .num_rows = num_rows,
              .num_tokens = num_tokens() + kSpareTokens};
    plan_.counts = take<std::int32_t>(2);
    plan_.partitions = take<std::int32_t>(plan_.max_partitions * kPartitionEntryInts);
    plan_.tiles = take<std::int32_t>(plan_.max_tiles * kTileEntryInts);
    plan_.tile_drafts = take<std::int32_t>(plan_.max_tiles * kTileEntryInts);
    plan_.arrivals = take<std::int32_t>(num_rows * test.num_kv_heads);
    plan_.token_rows = take<std::int32_t>(batch_.num_tokens);
    partials_ = take<float>(partial_floats(plan_.max_partitions, test.num_kv_heads, test.head_dim));
    qkv = take<std::uint16_t>(batch_.num_tokens * qkv_stride());
    out = take<std::uint16_t>(batch_.num_tokens * out_stride());
  }

  static constexpr std::int32_t kSpareTokens = 3;  // a step may have fewer tokens than its arrays
  std::int32_t num_tokens() const { return cu_seqlens_.back(); }
  std::int32_t first_token(std::size_t row) const { return cu_seqlens_[row]; }
  std::int64_t qkv_stride() const { return std::int64_t{test_.num_heads + 2 * test_.num_kv_heads} * test_.head_dim; }
  std::int64_t out_stride() const { return std::int64_t{test_.num_heads} * test_.head_dim; }

  std::uint16_t* qkv = nullptr;  // bf16 [num_tokens + kSpareTokens, num_heads + 2 * num_kv_heads, head_dim]
  std::uint16_t* out = nullptr;  // bf16 [num_tokens + kSpareTokens, num_heads, head_dim]

  void plan() {
    run(stream_, &CudaKernels::plan_attention,
        {.batch = batch_,
         .plan = plan_,
         .num_heads = test_.num_heads,
         .num_kv_heads = test_.num_kv_heads,
         .head_dim = test_.head_dim,
         .window = test_.window,
         .max_few_rows = max_few_rows_});
  }
  PrepareQkvSm90Params prepare_params(void* cache) const {
    return {.batch = batch_,
            .token_rows = plan_.token_rows,
            .cache = cache_view(test_, cache),
            .qkv = qkv,
            .qkv_stride = qkv_stride(),
            .num_heads = test_.num_heads,
            .epsilon = 1e-6F};
  }
  void prepare(device::CudaStream& stream, const PrepareQkvSm90Params& params) {
    run(stream, &CudaKernels::prepare_qkv, params);
  }
  void attend(device::CudaStream& stream, void* cache, float scale) {
    run(stream, &CudaKernels::paged_attention,
        {.batch = batch_,
         .plan = plan_,
         .cache = cache_view(test_, cache),
         .q = qkv,
         .q_stride = qkv_stride(),
         .num_heads = test_.num_heads,
         .scale = scale,
         .window = test_.window,
         .out = out,
         .out_stride = out_stride(),
         .partials = partials_,
         .max_few_queries = max_few_queries_,
         .has_tiles = has_tiles_});
  }

 private:
  template <typename Params>
  static void run(device::CudaStream& stream, device::CudaLaunch<Params>* CudaKernels::*kernel, const Params& params) {
    stream.note("a kernel of the step", (stream.table().kernels->*kernel)(stream.handle(), params));
  }
  template <typename T>
  T* take(std::int64_t count) {
    return reinterpret_cast<T*>(arena_.take(count * sizeof(T) + 16));
  }
  template <typename T>
  T* put(const std::vector<T>& values) {
    T* there = take<T>(static_cast<std::int64_t>(values.size()));
    stream_.copy(there, values.data(), values.size() * sizeof(T));
    return there;
  }
  /// Places that belong to no block of a row hold what would fault if it were followed.
  std::vector<std::int32_t> flat(const BlockTables& tables) {
    for (const auto& row : tables.rows) max_blocks_ = std::max(max_blocks_, static_cast<std::int32_t>(row.size()) + 1);
    std::vector<std::int32_t> all(test_.rows.size() * max_blocks_, -(1 << 30));
    for (std::size_t row = 0; row < test_.rows.size(); ++row) {
      const std::int32_t count = (test_.rows[row].context_len + test_.block_size - 1) / test_.block_size;
      std::copy_n(tables.rows[row].begin(), count, all.begin() + static_cast<std::ptrdiff_t>(row) * max_blocks_);
    }
    return all;
  }

  device::CudaStream& stream_;
  device::CudaArena& arena_;
  Case test_;
  std::int32_t max_few_rows_;
  std::vector<std::int32_t> cu_seqlens_ = {0};
  std::int32_t max_blocks_ = 0;
  std::int32_t max_few_queries_ = 0;
  bool has_tiles_ = false;
  PagedBatchSm90 batch_ = {};
  AttentionPlanSm90 plan_ = {};
  float* partials_ = nullptr;
};

}  // namespace thalweg::kernels::attention
