// The product of many tokens: one block per multiprocessor goes over tiles of 128 tokens x kColumns rows of W. One
// warpgroup copies panels (128 bytes of K) into a ring of stages, two multiply 64 tokens each and store. In a cluster
// of two blocks, which take neighbouring tokens, each copies half of a panel of W into both.
#pragma once

#include <algorithm>

#include "device/cuda/ptx.h"
#include "kernels/linear/sm90_epilogue.h"

namespace thalweg::kernels::sm90 {

namespace ptx = device::ptx;

/// Blocks that share what they read of W. Clusters pay where W is most of what is read.
constexpr std::int32_t cluster_of(std::int32_t tile_columns) { return tile_columns == 256 ? 2 : 1; }

/// How the sums of a result are made; see sm90.h.
enum class Sums : std::uint8_t { kOneLevel, kBlocks };

inline constexpr int kTileTokens = 128;
inline constexpr int kGemmThreads = 3 * 128;
inline constexpr int kScaleBlock = 128;

struct GemmArgs {
  Output output;
  std::int32_t num_panels;
  std::int32_t num_token_tiles;  // of a cluster
  std::int32_t num_column_tiles;
  const float* x_scale;
  std::int64_t x_scale_stride;
  const float* weight_scale;
};

template <int kColumns>
struct GemmStage {
  static constexpr int kXBytes = kTileTokens * ptx::kPanelBytes;
  static constexpr int kWeightBytes = kColumns * ptx::kPanelBytes;
  static constexpr int kBytes = kXBytes + kWeightBytes;
  static constexpr int kNum = kColumns == 256 ? 4 : kColumns == 128 ? 6 : 8;
  // 1,024 more to align the ring; behind it scales of tokens, then barriers.
  static constexpr int kScaleBytes = kTileTokens * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = kNum * (kBytes + kScaleBytes + 2 * static_cast<int>(sizeof(ptx::Barrier))) + 1024;
};

/// Tiles in an order in which those of one time share tokens and rows of W in the second-level cache: all columns for
/// one group of tokens, then the next group.
struct TileOrder {
  static constexpr int kGroupTokens = 2048;
  int num_token_tiles;
  int num_column_tiles;
  int group;  // token tiles

  struct Tile {
    int token_tile;
    int column_tile;
  };
  __device__ __forceinline__ int count() const { return num_token_tiles * num_column_tiles; }
  __device__ __forceinline__ Tile at(int index) const {
    const int first = index / (group * num_column_tiles) * group;
    const int in_group = index % (group * num_column_tiles);
    const int size = min(group, num_token_tiles - first);
    return {first + in_group % size, in_group / size};
  }
};

/// Place in the ring, and how often it has been around.
template <int kNum>
struct RingPosition {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kNum) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <int kColumns>
struct GemmShared {
  using Stage = GemmStage<kColumns>;
  unsigned char* ring;
  float* x_scale;  // [stages, kTileTokens], kBlocks
  ptx::Barrier* full;
  ptx::Barrier* empty;
  __device__ __forceinline__ unsigned char* x(int stage) const { return ring + stage * Stage::kBytes; }
  __device__ __forceinline__ unsigned char* weight(int stage) const { return x(stage) + Stage::kXBytes; }
};

// One thread.
template <Sums kSums, int kColumns, int kCluster>
__device__ __forceinline__ void copy_tiles(const CUtensorMap* x_map, const CUtensorMap* weight_map,
                                           const GemmArgs& args, const GemmShared<kColumns>& shared,
                                           const TileOrder& order, int cluster, int num_clusters, int rank) {
  using Stage = GemmStage<kColumns>;
  RingPosition<Stage::kNum> at;
  constexpr int kShare = kColumns / kCluster;
  for (int index = cluster; index < order.count(); index += num_clusters) {
    const auto tile = order.at(index);
    const int token = (tile.token_tile * kCluster + rank) * kTileTokens;
    const int column = tile.column_tile * kColumns + rank * kShare;
    const std::int64_t num_scales = min(args.x_scale_stride - token, std::int64_t{kTileTokens});
    const int scale_bytes = kSums == Sums::kBlocks && num_scales > 0 ? static_cast<int>(num_scales * sizeof(float)) : 0;
    for (int panel = 0; panel < args.num_panels; ++panel) {
      ptx::Barrier* full = shared.full + at.stage;
      ptx::barrier_wait(shared.empty + at.stage, at.parity ^ 1);
      ptx::barrier_arrive_expect(full, Stage::kBytes + scale_bytes);
      if (scale_bytes > 0) {
        ptx::load_bytes(shared.x_scale + at.stage * kTileTokens, args.x_scale + panel * args.x_scale_stride + token,
                        scale_bytes, full, ptx::kEvictNormal);
      }
      ptx::load_box(shared.x(at.stage), x_map, token, panel, full, ptx::kEvictNormal);
      unsigned char* weight = shared.weight(at.stage) + rank * kShare * ptx::kPanelBytes;
      if constexpr (kCluster == 1) {
        ptx::load_box(weight, weight_map, column, panel, full, ptx::kEvictNormal);
      } else {
        ptx::load_box_multicast(weight, weight_map, column, panel, full, (1 << kCluster) - 1, ptx::kEvictNormal);
      }
      at.advance();
    }
  }
}

template <int kCluster>
__device__ __forceinline__ void release(ptx::Barrier* empty) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  if constexpr (kCluster == 1) {
    if (lane == 0) ptx::barrier_arrive(empty);
  } else {
    if (lane < kCluster) ptx::barrier_arrive_at(empty, lane);
  }
}

// One product of 64 tokens with kColumns rows, one panel of K.
template <ptx::Operand kOperand, int kColumns>
__device__ __forceinline__ void multiply_panel(float* d, std::uint32_t x, std::uint32_t weight, bool accumulate) {
#pragma unroll
  for (int k = 0; k < ptx::kInstructionsPerPanel; ++k) {
    ptx::Product<kOperand, kColumns>::run(d, x + k * ptx::kDescriptorStep, weight + k * ptx::kDescriptorStep,
                                          accumulate || k > 0);
  }
}

// The sums of a tile in one level. A stage is given back when the products after it have been issued.
template <ptx::Operand kOperand, int kColumns, int kCluster>
__device__ __forceinline__ void sum_tile(float (&d)[kColumns / 2], const GemmArgs& args,
                                         const GemmShared<kColumns>& shared, int half,
                                         RingPosition<GemmStage<kColumns>::kNum>& at) {
  int previous = 0;
  for (int panel = 0; panel < args.num_panels; ++panel) {
    ptx::barrier_wait(shared.full + at.stage, at.parity);
    ptx::pin(d);
    ptx::product_fence();
    multiply_panel<kOperand, kColumns>(d, ptx::tile_descriptor(shared.x(at.stage) + half * 64 * ptx::kPanelBytes),
                                       ptx::tile_descriptor(shared.weight(at.stage)), panel > 0);
    ptx::product_commit();
    if (panel > 0) {
      ptx::product_wait<1>();
      release<kCluster>(shared.empty + previous);
    }
    previous = at.stage;
    at.advance();
  }
  ptx::product_wait<0>();
  ptx::pin(d);
  release<kCluster>(shared.empty + previous);
}

// Sums of blocks: `part` is the sum of a panel, of 128 rows of W at a time to save registers, and is added with its
// scale. While this warpgroup adds, the other multiplies.
template <ptx::Operand kOperand, int kColumns, int kCluster>
__device__ __forceinline__ void sum_tile_by_blocks(float (&d)[kColumns / 2], const GemmArgs& args,
                                                   const GemmShared<kColumns>& shared, int half, int lane_token,
                                                   int first_column, RingPosition<GemmStage<kColumns>::kNum>& at) {
  constexpr int kPart = kColumns < 128 ? kColumns : 128;
  constexpr int kParts = kColumns / kPart;
  const float* weight_scale[kParts];
  float next[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int row = min(first_column + i * kPart, args.output.num_rows - 1);
    weight_scale[i] = args.weight_scale + static_cast<std::int64_t>(row / kScaleBlock) * args.num_panels;
    next[i] = __ldg(weight_scale[i]);
  }
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) d[i] = 0.0f;

  for (int panel = 0; panel < args.num_panels; ++panel) {
    ptx::barrier_wait(shared.full + at.stage, at.parity);
    const float* x_scale = shared.x_scale + at.stage * kTileTokens + lane_token;
    const float x_scales[2] = {x_scale[0], x_scale[8]};
    const std::uint32_t x = ptx::tile_descriptor(shared.x(at.stage) + half * 64 * ptx::kPanelBytes);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      float part[kPart / 2];
      ptx::product_fence();
      multiply_panel<kOperand, kPart>(
          part, x, ptx::tile_descriptor(shared.weight(at.stage) + p * kPart * ptx::kPanelBytes), false);
      ptx::product_commit();
      const float factors[2] = {x_scales[0] * next[p], x_scales[1] * next[p]};
      next[p] = __ldg(weight_scale[p] + min(panel + 1, args.num_panels - 1));
      ptx::product_wait<0>();
      ptx::pin(part);
      if (p == kParts - 1) release<kCluster>(shared.empty + at.stage);
      float* sum = d + p * (kPart / 2);
#pragma unroll
      for (int i = 0; i < kPart / 2; ++i) sum[i] = fmaf(part[i], factors[i / 2 % 2], sum[i]);
    }
    at.advance();
  }
}

template <ptx::Operand kOperand, Sums kSums, int kColumns, int kCluster>
__global__ void __launch_bounds__(kGemmThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap weight_map,
                const GemmArgs args) {
  using Stage = GemmStage<kColumns>;
  extern __shared__ unsigned char shared_memory[];
  GemmShared<kColumns> shared;
  const std::uint32_t misaligned = ptx::shared_address(shared_memory) % 1024;
  shared.ring = shared_memory + (misaligned == 0 ? 0 : 1024 - misaligned);
  shared.x_scale = reinterpret_cast<float*>(shared.ring + Stage::kNum * Stage::kBytes);
  shared.full = reinterpret_cast<ptx::Barrier*>(shared.x_scale + Stage::kNum * kTileTokens);
  shared.empty = shared.full + Stage::kNum;

  const int rank = kCluster == 1 ? 0 : ptx::cluster_rank();
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = 8;
    for (int i = 0; i < Stage::kNum; ++i) {
      ptx::barrier_init(shared.full + i, 1);
      ptx::barrier_init(shared.empty + i, kConsumerWarps * kCluster);
    }
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&x_map);
    ptx::prefetch_tensor_map(&weight_map);
  }
  if constexpr (kCluster > 1) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
  ptx::allow_next_kernel();
  ptx::wait_for_earlier_kernels();

  constexpr int kGroup = TileOrder::kGroupTokens / (kTileTokens * kCluster);
  const TileOrder order = {args.num_token_tiles, args.num_column_tiles, kGroup};
  const int cluster = static_cast<int>(blockIdx.x) / kCluster;
  const int num_clusters = static_cast<int>(gridDim.x) / kCluster;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;

  if (warpgroup == 0) {
    ptx::lower_registers<40>();
    if (threadIdx.x == 0) {
      copy_tiles<kSums, kColumns, kCluster>(&x_map, &weight_map, args, shared, order, cluster, num_clusters, rank);
    }
  } else {
    ptx::raise_registers<232>();
    const int half = warpgroup - 1;
    const int lane_token =
        half * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    float scale = 1.0f;
    if (kOperand == ptx::Operand::kE4M3 && kSums != Sums::kBlocks) scale = *args.x_scale * *args.weight_scale;
    RingPosition<Stage::kNum> at;
    float d[kColumns / 2];
    for (int index = cluster; index < order.count(); index += num_clusters) {
      const auto tile = order.at(index);
      const int token = (tile.token_tile * kCluster + rank) * kTileTokens + lane_token;
      const int column = tile.column_tile * kColumns;
      if constexpr (kSums == Sums::kOneLevel) {
        sum_tile<kOperand, kColumns, kCluster>(d, args, shared, half, at);
      } else {
        sum_tile_by_blocks<kOperand, kColumns, kCluster>(d, args, shared, half, lane_token, column, at);
      }
      store_tile<kColumns>(args.output, token, column, d, scale);
    }
  }
  __syncwarp();
  // A block must not leave while its neighbour still writes into it.
  if constexpr (kCluster > 1) ptx::cluster_sync();
}

}  // namespace thalweg::kernels::sm90
