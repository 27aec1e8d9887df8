#include "device/cuda/runtime.h"
#include "kernels/attention/paged_attention/sm90_partitions.h"
#include "kernels/attention/paged_attention/sm90_start.h"

namespace thalweg::kernels::attention {
namespace {

__device__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared));
}
__device__ void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared));
}
/// d += a * b of [16, 16] and [16, 8].
__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// One kv head of a plan's entry.
struct Entry : PartitionEntry {
  std::int32_t index;  // of its partials
  std::int32_t kv_head;
  std::int32_t first_position;  // of its queries
  std::int32_t begin_tile;
  std::int32_t end_tile;

  __device__ Entry(const PagedAttentionSm90Params& params, std::int32_t entry, std::int32_t tile)
      : PartitionEntry(
            reinterpret_cast<const PartitionEntry*>(params.plan.partitions)[entry / params.cache.num_kv_heads]),
        index(entry),
        kv_head(entry % params.cache.num_kv_heads),  // neighbours in memory are read at the same time
        first_position(context_len - num_queries) {
    const std::int32_t tiles_per_partition = kPartitionTokens / tile;
    begin_tile = max(partition * tiles_per_partition, first_key(first_position, params.window) / tile);
    end_tile = min((partition + 1) * tiles_per_partition, (context_len + tile - 1) / tile);
  }
};

template <int kHeadDim, int kRows>
__device__ void produce(const PagedAttentionSm90Params& params, PartitionShared<kHeadDim, kRows>& shared) {
  constexpr int kTile = tile_tokens(kHeadDim);
  const std::int32_t num_entries = params.plan.counts[0] * params.cache.num_kv_heads;
  Ring<PartitionShared<kHeadDim, kRows>::kBuffers> ring;
  for (auto i = static_cast<std::int32_t>(blockIdx.x); i < num_entries; i += static_cast<std::int32_t>(gridDim.x)) {
    const Entry entry(params, i, kTile);
    const RowKeys keys(params.batch, entry.row, first_key(entry.first_position, params.window),
                       entry.first_position + entry.num_queries - 1);
    for (std::int32_t tile = entry.begin_tile; tile < entry.end_tile; ++tile) {
      copy_tile<kHeadDim>(params.cache, keys, tile, entry.kv_head, &shared.buffers[0][0], shared.full, shared.empty,
                          ring, ptx::kEvictFirst);
    }
  }
}

/// The computing warps' share: everything about one entry that stays in registers between tiles.
template <int kHeadDim, int kRows>
struct Consumer {
  using Shared = PartitionShared<kHeadDim, kRows>;
  static constexpr int kTile = tile_tokens(kHeadDim);
  static constexpr int kRowTiles = kRows / 16;
  static constexpr int kKeys = kTile / kQuarters;     // of a tile, that this warp scores
  static constexpr int kDims = kHeadDim / kQuarters;  // of the output, that this warp makes
  static constexpr int kAtoms = kHeadDim / 64;        // of 8 tokens, 1024 bytes each

  const PagedAttentionSm90Params& params;
  Shared& shared;
  const float log2_scale;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  Ring<Shared::kBuffers> ring;

  float outputs[kRowTiles][kDims / 8][4];
  float maxima[kRowTiles][2];  // of rows lane / 4 and eight below
  float sums[kRowTiles][2];    // this thread's part of this warp's quarter

  __device__ Consumer(const PagedAttentionSm90Params& p, Shared& s)
      : params(p), shared(s), log2_scale(p.scale * 1.44269504088896341F) {}

  __device__ int group() const { return params.num_heads / params.cache.num_kv_heads; }
  __device__ void sync() const { ptx::named_barrier_sync(1, kPartitionThreads); }
  __device__ std::uint32_t buffer() const { return ptx::shared_address(shared.buffers[ring.buffer]); }
  __device__ void release() {
    __syncwarp();
    if (lane == 0) ptx::barrier_arrive(shared.empty + ring.buffer);
    ring.advance();
  }

  __device__ void load_queries(const Entry& entry) {
    constexpr int kChunks = kHeadDim / 8;
    const int num_rows = entry.num_queries * group();
    const auto* q = static_cast<const __nv_bfloat16*>(params.q);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kPartitionThreads) {
      const int row = i / kChunks;
      uint4 chunk = {};
      if (row < num_rows) {
        const std::int64_t token = entry.first_token + row / group();
        const int head = entry.kv_head * group() + row % group();
        chunk = *reinterpret_cast<const uint4*>(q + token * params.q_stride + std::int64_t{head} * kHeadDim +
                                                i % kChunks * 8);
      }
      *reinterpret_cast<uint4*>(&shared.queries[row][i % kChunks * 8]) = chunk;
    }
  }

  __device__ void score(float (&scores)[kRowTiles][kKeys / 8][4]) const {
#pragma unroll
    for (int dims = 0; dims < kHeadDim; dims += 32) {
      std::uint32_t queries[kRowTiles][2][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          load_matrices(queries[m][half],
                        ptx::shared_address(&shared.queries[m * 16 + lane % 16][dims + half * 16 + lane / 16 * 8]));
        }
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        const int atom = (warp * (kKeys / 8) + n) * kAtoms + dims / 64;
        const int chunk = dims % 64 / 8 + lane / 8;
        std::uint32_t keys[4];
        load_matrices(keys, buffer() + atom * 1024 + lane % 8 * 128 + (chunk ^ (lane % 8)) * 16);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply(scores[m][n], queries[m][0], keys[0], keys[1]);
          multiply(scores[m][n], queries[m][1], keys[2], keys[3]);
        }
      }
    }
  }

  __device__ void mask(const Entry& entry, std::int32_t tile, float (&scores)[kRowTiles][kKeys / 8][4]) const {
    const std::int32_t first = tile * kTile;
    const std::int32_t last_position = entry.first_position + entry.num_queries - 1;
    const bool is_whole = first + kTile - 1 <= entry.first_position && first >= first_key(last_position, params.window);
    if (is_whole) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int32_t position = entry.first_position + (m * 16 + half * 8 + lane / 4) / group();
        const std::int32_t begin = first_key(position, params.window);
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const std::int32_t key = first + warp * kKeys + n * 8 + lane % 4 * 2 + i;
            if (key > position || key < begin) scores[m][n][half * 2 + i] = kMasked;
          }
        }
      }
    }
  }

  /// Agrees with the other warps on the maxima, leaves the probabilities in shared memory and rescales what was summed.
  __device__ void soften(std::int32_t tile, const float (&scores)[kRowTiles][kKeys / 8][4]) {
    auto& of_quarters = shared.of_quarters[tile % 2];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = kMasked;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          largest = fmaxf(largest, fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
        }
        largest = quad_max(largest);
        if (lane % 4 == 0) of_quarters[warp][m * 16 + half * 8 + lane / 4] = largest;
      }
    }
    sync();
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        float maximum = maxima[m][half];
#pragma unroll
        for (int quarter = 0; quarter < kQuarters; ++quarter) maximum = fmaxf(maximum, of_quarters[quarter][row]);
        const float factor = rescaling(maxima[m][half], maximum, log2_scale);
        const float offset = -__fmul_rn(subtrahend(maximum), log2_scale);
        maxima[m][half] = maximum;
        float sum = 0.0F;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          const float p0 = probability(scores[m][n][half * 2], log2_scale, offset);
          const float p1 = probability(scores[m][n][half * 2 + 1], log2_scale, offset);
          sum = __fadd_rn(__fadd_rn(sum, p0), p1);
          *reinterpret_cast<std::uint32_t*>(&shared.probabilities[row][warp * kKeys + n * 8 + lane % 4 * 2]) =
              pack_bf16(p0, p1);
        }
        sums[m][half] = __fmaf_rn(sums[m][half], factor, sum);
#pragma unroll
        for (int n = 0; n < kDims / 8; ++n) {
          outputs[m][n][half * 2] = __fmul_rn(outputs[m][n][half * 2], factor);
          outputs[m][n][half * 2 + 1] = __fmul_rn(outputs[m][n][half * 2 + 1], factor);
        }
      }
    }
    sync();
  }

  __device__ void weigh_values() {
#pragma unroll
    for (int keys = 0; keys < kTile; keys += 16) {
      std::uint32_t weights[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        load_matrices(weights[m], ptx::shared_address(&shared.probabilities[m * 16 + lane % 16][keys + lane / 16 * 8]));
      }
#pragma unroll
      for (int n = 0; n < kDims / 8; n += 2) {
        const int dim = warp * kDims + (n + lane / 16) * 8;
        const int atom = (keys / 8 + lane / 8 % 2) * kAtoms + dim / 64;
        std::uint32_t values[4];
        load_matrices_transposed(values, buffer() + atom * 1024 + lane % 8 * 128 + ((dim % 64 / 8) ^ (lane % 8)) * 16);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply(outputs[m][n], weights[m], values[0], values[1]);
          multiply(outputs[m][n + 1], weights[m], values[2], values[3]);
        }
      }
    }
  }

  __device__ void attend(const Entry& entry) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        maxima[m][half] = kMasked;
        sums[m][half] = 0.0F;
      }
#pragma unroll
      for (int n = 0; n < kDims / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) outputs[m][n][i] = 0.0F;
      }
    }
    for (std::int32_t tile = entry.begin_tile; tile < entry.end_tile; ++tile) {
      float scores[kRowTiles][kKeys / 8][4] = {};
      ptx::barrier_wait(shared.full + ring.buffer, ring.parity);
      score(scores);
      release();
      mask(entry, tile, scores);
      soften(tile, scores);
      ptx::barrier_wait(shared.full + ring.buffer, ring.parity);
      weigh_values();
      release();
    }
    exchange_sums();
  }

  /// Afterwards every warp has the denominators of all keys.
  __device__ void exchange_sums() {
    sync();  // maxima have been read
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(sums[m][half]);
        if (lane % 4 == 0) shared.of_quarters[0][warp][m * 16 + half * 8 + lane / 4] = sum;
      }
    }
    sync();
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float of_row[kQuarters];
#pragma unroll
        for (int quarter = 0; quarter < kQuarters; ++quarter) {
          of_row[quarter] = shared.of_quarters[0][quarter][m * 16 + half * 8 + lane / 4];
        }
        sums[m][half] = sum_of_quarters(of_row);
      }
    }
    sync();  // before the next entry's maxima
  }

  __device__ __nv_bfloat16* out_row(const Entry& entry, int row) const {
    const std::int64_t token = entry.first_token + row / group();
    const int head = entry.kv_head * group() + row % group();
    return static_cast<__nv_bfloat16*>(params.out) + token * params.out_stride + std::int64_t{head} * kHeadDim;
  }

  __device__ void store(const Entry& entry) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        if (row >= entry.num_queries * group()) continue;
        const float inverse = __frcp_rn(sums[m][half]);
        auto* out = reinterpret_cast<std::uint32_t*>(out_row(entry, row) + warp * kDims + lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < kDims / 8; ++n) {
          out[n * 4] =
              pack_bf16(normalized(outputs[m][n][half * 2], inverse), normalized(outputs[m][n][half * 2 + 1], inverse));
        }
      }
    }
  }

  /// [kRows, kHeadDim] outputs, then maxima and sums of the rows.
  __device__ float* partial(std::int32_t index) const {
    return params.partials + std::int64_t{index} * kRows * (kHeadDim + 2);
  }

  __device__ void store_partial(const Entry& entry) const {
    float* out = partial(entry.index);
    float* of_rows = out + kRows * kHeadDim;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        if (row >= entry.num_queries * group()) continue;
        auto* of_row = reinterpret_cast<float2*>(out + row * kHeadDim + warp * kDims + lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < kDims / 8; ++n) {
          of_row[n * 4] = make_float2(outputs[m][n][half * 2], outputs[m][n][half * 2 + 1]);
        }
        if (warp == 0 && lane % 4 == 0) {
          of_rows[row] = maxima[m][half];
          of_rows[kRows + row] = sums[m][half];
        }
      }
    }
  }

  /// Whether all partials of the row's kv head are there; true for one block alone.
  __device__ bool is_last_to_arrive(const Entry& entry) const {
    __threadfence();
    sync();
    if (threadIdx.x == 0) {
      std::int32_t* arrivals = params.plan.arrivals + entry.row * params.cache.num_kv_heads + entry.kv_head;
      const std::int32_t num_partitions = entry.end_partition - entry.first_partition;
      shared.is_last = atomicAdd(arrivals, 1) == num_partitions - 1;
      if (shared.is_last) *arrivals = 0;  // for the next layer
      __threadfence();
    }
    sync();
    return shared.is_last;
  }

  __device__ void fold(const Entry& entry) const {
    const std::int32_t num_partitions = entry.end_partition - entry.first_partition;
    const std::int32_t step = params.cache.num_kv_heads;
    const std::int32_t first = entry.index - (entry.partition - entry.first_partition) * step;
    constexpr int kChunks = kHeadDim / 4;
    const int num_chunks = entry.num_queries * group() * kChunks;
    for (int i = static_cast<int>(threadIdx.x); i < num_chunks; i += kPartitionThreads) {
      const int row = i / kChunks;
      Fold fold;
      float4 folded = {};
      constexpr int kBatch = 4;  // loads at a time
      for (std::int32_t batch = 0; batch < num_partitions; batch += kBatch) {
        float4 next[kBatch];
        float maximum[kBatch];
        float sum[kBatch];
#pragma unroll
        for (int part = 0; part < kBatch; ++part) {
          if (batch + part >= num_partitions) continue;
          const float* from = partial(first + (batch + part) * step);
          next[part] = __ldcg(reinterpret_cast<const float4*>(from) + i);
          maximum[part] = __ldcg(from + kRows * kHeadDim + row);
          sum[part] = __ldcg(from + kRows * kHeadDim + kRows + row);
        }
#pragma unroll
        for (int part = 0; part < kBatch; ++part) {
          if (batch + part >= num_partitions) continue;
          if (batch + part == 0) {
            fold.start(maximum[part], sum[part]);
            folded = next[part];
            continue;
          }
          fold.add(maximum[part], sum[part], log2_scale);
          folded = make_float4(fold.output(folded.x, next[part].x), fold.output(folded.y, next[part].y),
                               fold.output(folded.z, next[part].z), fold.output(folded.w, next[part].w));
        }
      }
      const float inverse = fold.inverse();
      *reinterpret_cast<uint2*>(out_row(entry, row) + i % kChunks * 4) =
          make_uint2(pack_bf16(normalized(folded.x, inverse), normalized(folded.y, inverse)),
                     pack_bf16(normalized(folded.z, inverse), normalized(folded.w, inverse)));
    }
  }

  __device__ void run() {
    const std::int32_t num_entries = params.plan.counts[0] * params.cache.num_kv_heads;
    for (auto i = static_cast<std::int32_t>(blockIdx.x); i < num_entries; i += static_cast<std::int32_t>(gridDim.x)) {
      const Entry entry(params, i, kTile);
      load_queries(entry);
      sync();
      attend(entry);
      if (entry.end_partition - entry.first_partition == 1) {
        store(entry);
        continue;
      }
      store_partial(entry);
      if (is_last_to_arrive(entry)) fold(entry);
    }
  }
};

template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(kPartitionThreads + 32, kPartitionBlocks)
    attend_partitions(const __grid_constant__ PagedAttentionSm90Params params) {
  using Shared = PartitionShared<kHeadDim, kRows>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shared::kBuffers; ++i) {
      ptx::barrier_init(shared.full + i, 1);
      ptx::barrier_init(shared.empty + i, kPartitionThreads / 32);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kPartitionThreads) {
    produce<kHeadDim, kRows>(params, shared);
  } else {
    Consumer<kHeadDim, kRows>(params, shared).run();
  }
}

template <int kHeadDim, int kRows>
device::CudaStatus start(CUstream_st* stream, const PagedAttentionSm90Params& params) {
  using Shared = PartitionShared<kHeadDim, kRows>;
  static_assert(sizeof(Shared) <= kSharedBytes);
  return start_persistent("attend_partitions", attend_partitions<kHeadDim, kRows>, kPartitionBlocks,
                          kPartitionThreads + 32, sizeof(Shared), stream, params);
}

template <int kHeadDim>
device::CudaStatus start_for_rows(CUstream_st* stream, const PagedAttentionSm90Params& params) {
  const std::int32_t num_rows = params.max_few_queries * (params.num_heads / params.cache.num_kv_heads);
  if (num_rows <= 16) return start<kHeadDim, 16>(stream, params);
  if (num_rows <= 32) return start<kHeadDim, 32>(stream, params);
  return start<kHeadDim, 64>(stream, params);
}

}  // namespace

device::CudaStatus attend_partitions_sm90(CUstream_st* stream, const PagedAttentionSm90Params& params) {
  switch (params.cache.head_dim) {
    case 64:
      return start_for_rows<64>(stream, params);
    case 128:
      return start_for_rows<128>(stream, params);
    default:
      return start_for_rows<256>(stream, params);
  }
}

}  // namespace thalweg::kernels::attention
