// Rows with many queries: chunks of prompts. Compute-bound: the bar is the tensor core's rate, so its shape is that of
// FlashAttention-3 (Shah et al. 2024). An entry of work is up to 128 rows, queries times the query heads of one kv
// head; two warpgroups have 64 of them each, a third loads. A warpgroup starts the scores of the next tile before the
// outputs of the last one, and makes probabilities while the outputs, and the other warpgroup's products, run.
//
// Where a partition of the keys ends, its outputs are folded into those of the partitions before, which wait in shared
// memory, each thread's in places of its own: registers would not hold both.
#include "device/cuda/runtime.h"
#include "kernels/attention/paged_attention/sm90_device.h"
#include "kernels/attention/paged_attention/sm90_start.h"
#include "kernels/attention/paged_attention/sm90_wgmma.h"

namespace thalweg::kernels::attention {
namespace {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kQueryThreads = 96;   // that load queries: three warps beside the one that copies keys and values

/// 16 bytes into shared memory, or zeros, without passing through registers.
__device__ void copy_or_zero(std::uint32_t to_shared, const void* from, bool copies) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(copies ? 16 : 0)
               : "memory");
}

/// Arrives without waiting; ptx::named_barrier_sync of the others waits for this.
__device__ void named_barrier_arrive(int id, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

template <int kHeadDim>
struct TileShared {
  static constexpr int kTile = tile_tokens(kHeadDim);
  static constexpr int kConsumers = tile_rows(kHeadDim) / 64;
  static constexpr int kBufferBytes = kTile * kHeadDim * 2;
  static constexpr int kBuffers = kHeadDim == 64 ? 8 : 4;
  static constexpr int kThreads = (kConsumers + 1) * kGroupThreads;

  alignas(1024) std::uint8_t buffers[kBuffers][kBufferBytes];         // keys and values in turn
  alignas(1024) std::uint8_t queries[kConsumers][64 * kHeadDim * 2];  // swizzled as keys are
  float4 folded[kConsumers][kHeadDim / 8][kGroupThreads];
  ptx::Barrier full[kBuffers];
  ptx::Barrier empty[kBuffers];
  ptx::Barrier queries_full[kConsumers];
  ptx::Barrier queries_empty[kConsumers];
};

/// One kv head of a plan's entry.
struct Entry : TileEntry {
  std::int32_t kv_head;
  std::int32_t first_position;
  std::int32_t begin_tile;
  std::int32_t end_tile;

  __device__ Entry(const PagedAttentionSm90Params& params, const TileEntry& planned, std::int32_t entry,
                   std::int32_t tile)
      : TileEntry(planned),
        kv_head(entry % params.cache.num_kv_heads),
        first_position(end - num_queries),
        begin_tile(first_key(first_position, params.window) / tile),
        end_tile((end - 1) / tile + 1) {}
};

/// Calls `body` with each of this block's entries; the next is on its way meanwhile.
template <typename Body>
__device__ void for_each_entry(const PagedAttentionSm90Params& params, std::int32_t tile, const Body& body) {
  const std::int32_t num_kv_heads = params.cache.num_kv_heads;
  const std::int32_t num_entries = params.plan.counts[1] * num_kv_heads;
  const auto* tiles = reinterpret_cast<const TileEntry*>(params.plan.tiles);
  std::int32_t index = entry_of_round(0);
  TileEntry planned = tiles[index < num_entries ? index / num_kv_heads : 0];
  for (std::int32_t round = 1; index < num_entries; ++round) {
    const Entry entry(params, planned, index, tile);
    index = entry_of_round(round);
    if (index < num_entries) planned = tiles[index / num_kv_heads];
    body(entry);
  }
}

template <int kHeadDim>
__device__ void copy_keys_and_values(const PagedAttentionSm90Params& params, TileShared<kHeadDim>& shared) {
  constexpr int kTile = tile_tokens(kHeadDim);
  Ring<TileShared<kHeadDim>::kBuffers> ring;
  for_each_entry(params, kTile, [&](const Entry& entry) {
    const RowKeys keys(params.batch, entry.row, first_key(entry.first_position, params.window), entry.end - 1);
    for (std::int32_t tile = entry.begin_tile; tile < entry.end_tile; ++tile) {
      copy_tile<kHeadDim>(params.cache, keys, tile, entry.kv_head, &shared.buffers[0][0], shared.full, shared.empty,
                          ring, ptx::kEvictNormal);
    }
  });
}

/// Each warpgroup's queries, as soon as it has scored with the ones before.
template <int kHeadDim>
__device__ void load_queries(const PagedAttentionSm90Params& params, TileShared<kHeadDim>& shared) {
  constexpr int kChunks = kHeadDim / 8;
  const int thread = static_cast<int>(threadIdx.x) - 32;
  const int chunk = thread % kChunks;
  const int group = params.num_heads / params.cache.num_kv_heads;
  int parity = 1;
  for_each_entry(params, tile_tokens(kHeadDim), [&](const Entry& entry) {
    const auto* from = static_cast<const __nv_bfloat16*>(params.q) + entry.first_token * params.q_stride +
                       std::int64_t{entry.kv_head} * group * kHeadDim + chunk * 8;
#pragma unroll 1
    for (int consumer = 0; consumer < TileShared<kHeadDim>::kConsumers; ++consumer) {
      const std::uint32_t to = ptx::shared_address(shared.queries[consumer]);
      ptx::barrier_wait(shared.queries_empty + consumer, parity);
#pragma unroll 2
      for (int place = thread / kChunks; place < 64; place += kQueryThreads / kChunks) {
        const int row = consumer * 64 + place;
        const int query = row / group;
        const bool exists = query < entry.num_queries;
        copy_or_zero(to + kv_element(kHeadDim, place, chunk * 8) * 2,
                     exists ? from + query * params.q_stride + row % group * kHeadDim : from, exists);
      }
      asm volatile("cp.async.wait_all;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      ptx::barrier_arrive(shared.queries_full + consumer);
    }
    parity ^= 1;
  });
}

/// One warpgroup's share.
template <int kHeadDim>
struct Consumer {
  using Shared = TileShared<kHeadDim>;
  static constexpr int kTile = tile_tokens(kHeadDim);
  static constexpr int kScores = kTile / 2;      // registers
  static constexpr int kOutputs = kHeadDim / 2;  // registers
  static constexpr int kAtoms = kHeadDim / 64;   // of eight tokens, 1024 bytes each
  static constexpr std::uint32_t kGroupStride = kAtoms * 1024;

  const PagedAttentionSm90Params& params;
  Shared& shared;
  const float log2_scale;
  const int consumer;
  const int thread = static_cast<int>(threadIdx.x % kGroupThreads);
  const int lane = static_cast<int>(threadIdx.x % 32);
  Ring<Shared::kBuffers> ring;
  int queries_parity = 0;

  float maxima[2];  // of this thread's two rows, in the running partition
  float sums[2][kQuarters];
  Fold folds[2];
  std::int32_t positions[2];

  __device__ Consumer(const PagedAttentionSm90Params& p, Shared& s, int c)
      : params(p), shared(s), log2_scale(p.scale * 1.44269504088896341F), consumer(c) {}

  __device__ int group() const { return params.num_heads / params.cache.num_kv_heads; }
  __device__ int row_in_entry(int half) const { return consumer * 64 + thread / 32 * 16 + half * 8 + lane / 4; }
  __device__ std::uint32_t buffer() const { return ptx::shared_address(shared.buffers[ring.buffer]); }
  __device__ void wait_full() { ptx::barrier_wait(shared.full + ring.buffer, ring.parity); }

  __device__ void start_scores(float (&scores)[kScores]) const {
    const std::uint64_t queries = attention_descriptor(ptx::shared_address(shared.queries[consumer]), kGroupStride);
    const std::uint64_t keys = attention_descriptor(buffer(), kGroupStride);
    ptx::product_fence();
#pragma unroll
    for (int dims = 0; dims < kHeadDim; dims += 16) {
      const std::uint64_t offset = (dims / 64 * 1024 + dims % 64 * 2) / 16;
      ptx::Product<ptx::Operand::kBF16, kTile>::run(scores, queries + offset, keys + offset, dims > 0);
    }
    ptx::product_commit();
  }

  __device__ void start_outputs(float (&outputs)[kOutputs], const std::uint32_t (&weights)[kTile / 16][4],
                                std::uint32_t values_buffer) const {
    const std::uint64_t values = attention_descriptor(values_buffer, kGroupStride);
    ptx::product_fence();
#pragma unroll
    for (int keys = 0; keys < kTile / 16; ++keys) {
      ValuesProduct<kHeadDim>::run(outputs, weights[keys], values + keys * 2 * kGroupStride / 16);
    }
    ptx::product_commit();
  }

  __device__ void mask(const Entry& entry, std::int32_t tile, float (&scores)[kScores]) const {
    const std::int32_t first = tile * kTile;
    if (first + kTile - 1 <= entry.first_position && first >= first_key(entry.end - 1, params.window)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t begin = first_key(positions[half], params.window) - first - lane % 4 * 2;
      const std::int32_t end = positions[half] - first - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (n * 8 + i > end || n * 8 + i < begin) scores[n * 4 + half * 2 + i] = kMasked;
        }
      }
    }
  }

  /// Scores become probabilities; `factors` are for what was summed under the maxima before.
  __device__ void soften(float (&scores)[kScores], float (&factors)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = kMasked;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        largest = fmaxf(largest, fmaxf(scores[n * 4 + half * 2], scores[n * 4 + half * 2 + 1]));
      }
      const float maximum = fmaxf(maxima[half], quad_max(largest));
      const float offset = -__fmul_rn(subtrahend(maximum), log2_scale);
      factors[half] = rescaling(maxima[half], maximum, log2_scale);
      maxima[half] = maximum;
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
        float sum = 0.0F;
#pragma unroll
        for (int n = quarter * (kTile / 32); n < (quarter + 1) * (kTile / 32); ++n) {
          float& p0 = scores[n * 4 + half * 2];
          float& p1 = scores[n * 4 + half * 2 + 1];
          p0 = probability(p0, log2_scale, offset);
          p1 = probability(p1, log2_scale, offset);
          sum = __fadd_rn(__fadd_rn(sum, p0), p1);
        }
        sums[half][quarter] = __fmaf_rn(sums[half][quarter], factors[half], sum);
      }
    }
  }

  /// The accumulators of two times eight columns are the next product's operand of 16.
  __device__ static void round_weights(const float (&scores)[kScores], std::uint32_t (&weights)[kTile / 16][4]) {
#pragma unroll
    for (int keys = 0; keys < kTile / 16; ++keys) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[keys][i] = pack_bf16(scores[keys * 8 + i * 2], scores[keys * 8 + i * 2 + 1]);
      }
    }
  }

  __device__ void start_partition() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maxima[half] = kMasked;
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) sums[half][quarter] = 0.0F;
    }
  }

  /// Takes over the running partition's maxima and sums; its outputs follow with fold_outputs.
  __device__ void fold_sums(bool is_first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float of_row[kQuarters];
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) of_row[quarter] = quad_sum(sums[half][quarter]);
      const float sum = sum_of_quarters(of_row);
      if (is_first) {
        folds[half].start(maxima[half], sum);
      } else {
        folds[half].add(maxima[half], sum, log2_scale);
      }
    }
  }

  __device__ void fold_outputs(float (&outputs)[kOutputs], bool is_first, bool is_last) {
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) {
      float4& folded = shared.folded[consumer][i][thread];
      float4 next = make_float4(outputs[i * 4], outputs[i * 4 + 1], outputs[i * 4 + 2], outputs[i * 4 + 3]);
      if (!is_first) {
        const float4 before = folded;
        next = make_float4(folds[0].output(before.x, next.x), folds[0].output(before.y, next.y),
                           folds[1].output(before.z, next.z), folds[1].output(before.w, next.w));
      }
      if (is_last) {
        outputs[i * 4] = next.x;
        outputs[i * 4 + 1] = next.y;
        outputs[i * 4 + 2] = next.z;
        outputs[i * 4 + 3] = next.w;
      } else {
        folded = next;
      }
    }
  }

  /// By way of shared memory, where the folded outputs were, so that a row is written 16 bytes beside 16 bytes.
  __device__ void store(const Entry& entry, const float (&outputs)[kOutputs]) const {
    constexpr int kStride = kHeadDim + 8;  // eight more against bank conflicts
    static_assert(sizeof(shared.folded[0]) >= 64 * kStride * sizeof(__nv_bfloat16));
    auto* rows = reinterpret_cast<__nv_bfloat16*>(shared.folded[consumer]);
    sync_warpgroup();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = folds[half].inverse();
      __nv_bfloat16* row = rows + (thread / 32 * 16 + half * 8 + lane / 4) * kStride + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(row + n * 8) = pack_bf16(normalized(outputs[n * 4 + half * 2], inverse),
                                                                   normalized(outputs[n * 4 + half * 2 + 1], inverse));
      }
    }
    sync_warpgroup();
    constexpr int kChunks = kHeadDim / 8;
    const int chunk = thread % kChunks * 8;
    auto* out = static_cast<__nv_bfloat16*>(params.out) + entry.first_token * params.out_stride +
                std::int64_t{entry.kv_head} * group() * kHeadDim + chunk;
#pragma unroll 4
    for (int place = thread / kChunks; place < 64; place += kGroupThreads / kChunks) {
      const int row = consumer * 64 + place;
      if (row >= entry.num_queries * group()) break;
      *reinterpret_cast<uint4*>(out + row / group() * params.out_stride + row % group() * kHeadDim) =
          *reinterpret_cast<const uint4*>(rows + place * kStride + chunk);
    }
    sync_warpgroup();  // before the next entry's outputs are folded
  }

  __device__ void sync_warpgroup() const { ptx::named_barrier_sync(3 + consumer, kGroupThreads); }

  /// Warpgroups take turns in starting products, so that one makes probabilities while the other multiplies.
  __device__ void take_turn() const {
    if constexpr (Shared::kConsumers == 2) ptx::named_barrier_sync(1 + consumer, 2 * kGroupThreads);
  }
  __device__ void pass_turn() const {
    if constexpr (Shared::kConsumers == 2) named_barrier_arrive(1 + (consumer ^ 1), 2 * kGroupThreads);
  }

  __device__ void attend(const Entry& entry) {
    float scores[kScores];
    float outputs[kOutputs];
    std::uint32_t weights[kTile / 16][4];
    float factors[2];
    const std::int32_t tiles_per_partition = kPartitionTokens / kTile;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) outputs[i] = 0.0F;
    start_partition();
    bool is_first_partition = true;

    ptx::barrier_wait(shared.queries_full + consumer, queries_parity);
    queries_parity ^= 1;
    wait_full();
    take_turn();
    start_scores(scores);
    pass_turn();
    ptx::product_wait<0>();
    ptx::pin(scores);
    release(ring);
    if (entry.begin_tile + 1 == entry.end_tile) release_queries();
    mask(entry, entry.begin_tile, scores);
    soften(scores, factors);
    round_weights(scores, weights);

    for (std::int32_t tile = entry.begin_tile + 1; tile < entry.end_tile; ++tile) {
      Ring<Shared::kBuffers> values = ring;  // of the tile before
      const std::uint32_t values_buffer = buffer();
      ring.advance();
      wait_full();  // keys come after those values
      ptx::barrier_wait(shared.full + values.buffer, values.parity);
      take_turn();
      start_scores(scores);
      start_outputs(outputs, weights, values_buffer);
      pass_turn();
      ptx::product_wait<1>();
      ptx::pin(scores);
      release(ring);
      if (tile + 1 == entry.end_tile) release_queries();
      const bool starts_partition = tile % tiles_per_partition == 0;
      if (starts_partition) {
        fold_sums(is_first_partition);
        start_partition();
      }
      mask(entry, tile, scores);
      soften(scores, factors);
      ptx::product_wait<0>();
      ptx::pin(outputs);
      release_buffer(values.buffer);
      if (starts_partition) {
        fold_outputs(outputs, is_first_partition, false);
        is_first_partition = false;
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) outputs[i] = 0.0F;
      } else {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) outputs[i] = __fmul_rn(outputs[i], factors[i % 4 / 2]);
      }
      round_weights(scores, weights);
    }

    wait_full();
    start_outputs(outputs, weights, buffer());
    ptx::product_wait<0>();
    ptx::pin(outputs);
    release(ring);
    fold_sums(is_first_partition);
    fold_outputs(outputs, is_first_partition, true);
    store(entry, outputs);
  }

  __device__ void release_queries() const {
    if (lane == 0) ptx::barrier_arrive(shared.queries_empty + consumer);
  }
  __device__ void release_buffer(int buffer) const {
    if (lane == 0) ptx::barrier_arrive(shared.empty + buffer);
  }
  __device__ void release(Ring<Shared::kBuffers>& which) const {
    release_buffer(which.buffer);
    which.advance();
  }

  __device__ void run() {
    if (Shared::kConsumers == 2 && consumer == 1) pass_turn();  // the first warpgroup begins
    for_each_entry(params, kTile, [&](const Entry& entry) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        positions[half] = entry.first_position + min(row_in_entry(half) / group(), entry.num_queries - 1);
      }
      attend(entry);
    });
  }
};

template <int kHeadDim>
__global__ void __launch_bounds__(TileShared<kHeadDim>::kThreads, 1)
    attend_tiles(const __grid_constant__ PagedAttentionSm90Params params) {
  using Shared = TileShared<kHeadDim>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shared::kBuffers; ++i) {
      ptx::barrier_init(shared.full + i, 1);
      ptx::barrier_init(shared.empty + i, Shared::kConsumers * 4);
    }
    for (int i = 0; i < Shared::kConsumers; ++i) {
      ptx::barrier_init(shared.queries_full + i, kQueryThreads);
      ptx::barrier_init(shared.queries_empty + i, 4);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    if constexpr (Shared::kConsumers == 2) ptx::lower_registers<40>();
    if (threadIdx.x < 32) {
      copy_keys_and_values<kHeadDim>(params, shared);
    } else {
      load_queries<kHeadDim>(params, shared);
    }
  } else {
    if constexpr (Shared::kConsumers == 2) ptx::raise_registers<232>();
    Consumer<kHeadDim>(params, shared, static_cast<int>(threadIdx.x / kGroupThreads) - 1).run();
  }
}

template <int kHeadDim>
device::CudaStatus start(CUstream_st* stream, const PagedAttentionSm90Params& params) {
  using Shared = TileShared<kHeadDim>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  return start_persistent("attend_tiles", attend_tiles<kHeadDim>, 1, Shared::kThreads, sizeof(Shared), stream, params);
}

}  // namespace

device::CudaStatus attend_tiles_sm90(CUstream_st* stream, const PagedAttentionSm90Params& params) {
  switch (params.cache.head_dim) {
    case 64:
      return start<64>(stream, params);
    case 128:
      return start<128>(stream, params);
    default:
      return start<256>(stream, params);
  }
}

}  // namespace thalweg::kernels::attention
