// Device code that both kernels of paged attention share. Their results are equal bit for bit because both make these
// steps in this order, with these instructions:
//
//   for each partition (kPartitionTokens) of the keys, for each of its tiles (tile_tokens), in ascending order:
//     scores by 16 dimensions after the other; maximum so far; probabilities; sums; outputs by 16 keys after the other;
//   the partitions' outputs are folded in ascending order.
//
// A tile's keys are summed in four quarters that keep their own sums up to the end of the partition, as if four warps
// had one each. Masked keys add zeros, which change nothing, so it does not matter whether a tile is skipped or masked.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "device/cuda/ptx.h"
#include "kernels/attention/paged_attention/sm90.h"
#include "kernels/attention/paged_attention/sm90_layout.h"

namespace thalweg::kernels::attention {

namespace ptx = device::ptx;

inline constexpr int kQuarters = 4;
__device__ constexpr float kMasked = -__builtin_huge_valf();

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What a maximum is subtracted as: nothing may be subtracted while every key is masked.
__device__ inline float subtrahend(float maximum) { return maximum == kMasked ? 0.0F : maximum; }

/// The factor on sums made under `old_maximum`, for scores in units of log2_scale.
__device__ inline float rescaling(float old_maximum, float new_maximum, float log2_scale) {
  return exp2_fast(__fmul_rn(__fsub_rn(old_maximum, subtrahend(new_maximum)), log2_scale));
}

/// `offset` is -subtrahend(maximum) * log2_scale.
__device__ inline float probability(float score, float log2_scale, float offset) {
  return exp2_fast(__fmaf_rn(score, log2_scale, offset));
}

/// Sum over the four threads that share a row of a fragment.
__device__ inline float quad_sum(float x) {
  x = __fadd_rn(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return __fadd_rn(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}

__device__ inline float sum_of_quarters(const float (&sums)[kQuarters]) {
  return __fadd_rn(__fadd_rn(__fadd_rn(sums[0], sums[1]), sums[2]), sums[3]);
}

/// A query's maximum and denominator over the partitions folded so far, and how outputs are folded with the next.
struct Fold {
  float maximum;
  float sum;
  float keep;  // factor on what was folded
  float take;  // factor on the next partition

  __device__ void start(float first_maximum, float first_sum) {
    maximum = first_maximum;
    sum = first_sum;
  }
  __device__ void add(float next_maximum, float next_sum, float log2_scale) {
    const float larger = fmaxf(maximum, next_maximum);
    keep = rescaling(maximum, larger, log2_scale);
    take = rescaling(next_maximum, larger, log2_scale);
    maximum = larger;
    sum = __fmaf_rn(sum, keep, __fmul_rn(next_sum, take));
  }
  __device__ float output(float folded, float next) const { return __fmaf_rn(folded, keep, __fmul_rn(next, take)); }
  __device__ float inverse() const { return __frcp_rn(sum); }
};

/// The zero is not in vain: a sum of nothing but -0 and +0 has the sign of the tiles that took part.
__device__ inline float normalized(float output, float inverse) { return __fmaf_rn(output, inverse, 0.0F); }

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Of a plan: all queries of a row of few, and one partition of their keys.
struct alignas(16) PartitionEntry {
  std::int32_t row;
  std::int32_t partition;
  std::int32_t first_partition;  // of the row
  std::int32_t end_partition;
  std::int32_t first_token;  // of the row, in the batch
  std::int32_t num_queries;
  std::int32_t context_len;
  std::int32_t padding;
};
static_assert(sizeof(PartitionEntry) == kPartitionEntryInts * sizeof(std::int32_t));

/// Of a plan: some queries of a row of many, and all of their keys.
struct alignas(16) TileEntry {
  std::int32_t row;
  std::int32_t first_token;  // of the queries, in the batch
  std::int32_t num_queries;
  std::int32_t end;  // of the keys: one past the last query's position
};
static_assert(sizeof(TileEntry) == kTileEntryInts * sizeof(std::int32_t));

/// The entry that this block takes in its turn `round`. Back and forth, because costly entries come first: the block
/// that has the largest of one round gets the smallest of the next.
__device__ inline std::int32_t entry_of_round(std::int32_t round) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const auto num_blocks = static_cast<std::int32_t>(gridDim.x);
  return round * num_blocks + (round % 2 == 0 ? block : num_blocks - 1 - block);
}

/// A ring of buffers in shared memory that a producer fills and consumers empty.
template <int kBuffers>
struct Ring {
  int buffer = 0;
  int parity = 0;
  __device__ void advance() {
    if (++buffer == kBuffers) {
      buffer = 0;
      parity ^= 1;
    }
  }
};

/// The keys that some queries of one row see, and where they lie.
struct RowKeys {
  const std::int32_t* block_table;  // of the row
  std::int32_t first_group;         // of kCopyTokens: the first and the last that hold a key which is seen
  std::int32_t last_group;

  /// `first` and `last` are positions.
  __device__ RowKeys(const PagedBatchSm90& batch, std::int32_t row, std::int32_t first, std::int32_t last)
      : block_table(batch.block_tables + std::int64_t{row} * batch.max_blocks_per_row),
        first_group(first / kCopyTokens),
        last_group(last / kCopyTokens) {}
};

/// The first key that a query sees.
__device__ inline std::int32_t first_key(std::int32_t position, std::int32_t window) {
  return window > 0 ? max(position - window + 1, 0) : 0;
}

/// One warp copies the keys, then the values of a tile into the ring's next buffers. Groups that nobody sees are
/// replaced by one that somebody does: what arrives is masked, but it is finite.
template <int kHeadDim, int kBuffers>
__device__ void copy_tile(const PagedKvSm90& cache, const RowKeys& keys, std::int32_t tile, std::int32_t kv_head,
                          std::uint8_t* buffers, ptx::Barrier* full, ptx::Barrier* empty, Ring<kBuffers>& ring,
                          std::uint64_t policy) {
  constexpr int kTile = tile_tokens(kHeadDim);
  constexpr int kGroups = kTile / kCopyTokens;
  constexpr int kGroupBytes = kCopyTokens * kHeadDim * sizeof(__nv_bfloat16);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int32_t group = min(max(tile * kGroups + lane, keys.first_group), keys.last_group);
  const std::int32_t groups_per_block = cache.block_size / kCopyTokens;
  const __nv_bfloat16* from = nullptr;
  if (lane < kGroups) {
    const std::int64_t block = keys.block_table[group / groups_per_block];
    from = static_cast<const __nv_bfloat16*>(cache.base) + block * cache.block_stride +
           kv_head_offset(kHeadDim, cache.block_size, kv_head) + group % groups_per_block * (kCopyTokens * kHeadDim);
  }
  const std::int64_t values_offset = std::int64_t{cache.block_size} * kHeadDim;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    ptx::barrier_wait(empty + ring.buffer, ring.parity ^ 1);
    if (lane == 0) ptx::barrier_arrive_expect(full + ring.buffer, kGroups * kGroupBytes);
    __syncwarp();
    if (lane < kGroups) {
      ptx::load_bytes(buffers + (ring.buffer * kGroups + lane) * kGroupBytes, from + part * values_offset, kGroupBytes,
                      full + ring.buffer, policy);
    }
    ring.advance();
  }
}

}  // namespace thalweg::kernels::attention
