// The product of few tokens, bound by reading W once. The roles of the operands are swapped: 64 rows of W meet kTokens
// tokens. One warp copies, one or two warpgroups multiply; each block takes a range of rows that divides W evenly
// among the multiprocessors, so a warpgroup may have fewer than 64 rows: it multiplies what lies behind them too and
// stores none of that.
//
// A result is one chain of dependent products, at 32 rows a block nearly as long as reading takes. So loops are
// unrolled over the panels of a stage, and what addresses are made of is the same in all lanes.
//
// A block needs half of a multiprocessor, so that the next kernel's blocks can come, and fill their rings with
// weights, while this kernel still runs.
#pragma once

#include <cuda_bf16.h>

#include "device/cuda/ptx.h"
#include "kernels/linear/sm90.h"
#include "kernels/linear/sm90_epilogue.h"
#include "kernels/linear/sm90_gemm.h"

namespace thalweg::kernels::sm90 {

inline constexpr int kMaxStreamStages = 32;
inline constexpr int kWarpgroupRows = 64;

struct StreamArgs {
  Output output;
  std::int32_t num_panels;
  std::int32_t rows_per_tile;  // a multiple of 8
  std::int32_t num_tiles;
  std::int32_t num_stages;
  std::int32_t stage_bytes;  // x, then weights; a multiple of 1,024
  const Q4UnitSm90* units;   // kQ4
  const float* x_scale;
  std::int64_t x_scale_stride;
  const float* weight_scale;
};

/// Panels of a stage. Blocks of many rows have large panels, and time.
constexpr int stream_panels(bool is_q4, int tokens, bool is_wide) {
  return is_wide && !is_q4 ? 1 : tokens <= 16 ? 4 : 2;
}

/// Shared memory: the ring, room for what a warpgroup reads behind its rows, barriers, and for kBlocks scales of
/// tokens, [stages, panels, tokens], and of rows, [2, num_panels].
inline constexpr int kStreamOverread = kWarpgroupRows * ptx::kPanelBytes;
inline constexpr int kStreamBarrierBytes = 2 * kMaxStreamStages * static_cast<int>(sizeof(ptx::Barrier));

struct StreamShared {
  unsigned char* ring;
  ptx::Barrier* full;
  ptx::Barrier* empty;
  float* x_scale;
  float* weight_scale;
};

struct StreamPosition {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance(int num_stages) {
    if (++stage == num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <LinearSm90Weights kWeights>
inline constexpr bool kIsQ4 = kWeights == LinearSm90Weights::kQ4;
template <LinearSm90Weights kWeights>
inline constexpr bool kHasBlocks = kWeights == LinearSm90Weights::kFp8Blocks;
template <LinearSm90Weights kWeights>
inline constexpr ptx::Operand kOperandOf =
    kWeights == LinearSm90Weights::kBF16 || kIsQ4<kWeights> ? ptx::Operand::kBF16 : ptx::Operand::kE4M3;

/// What both sides of the ring agree on.
template <LinearSm90Weights kWeights, int kTokens, bool kWide>
struct Stream {
  static constexpr int kPanels = stream_panels(kIsQ4<kWeights>, kTokens, kWide);
  static constexpr int kXPanelBytes = kTokens * ptx::kPanelBytes;
  static constexpr int kXBytes = kPanels * kXPanelBytes;
  static constexpr int kConsumers = kWide ? 256 : 128;

  __device__ static __forceinline__ int steps_per_tile(const StreamArgs& args) {
    return (args.num_panels + kPanels - 1) / kPanels;
  }
};

// ---- the copying warp -----------------------------------------------------------------------------------------------

// The panels of one stage, in the order in which all warps meet them.
struct StreamStep {
  int tile;
  int first_panel;
  __device__ __forceinline__ void advance(const StreamArgs& args, int num_panels) {
    first_panel += num_panels;
    if (first_panel >= args.num_panels) {
      first_panel = 0;
      tile += static_cast<int>(gridDim.x);
    }
  }
};

template <LinearSm90Weights kWeights, int kTokens, bool kWide>
struct StreamCopy {
  using S = Stream<kWeights, kTokens, kWide>;
  const CUtensorMap* x_map;
  const CUtensorMap* weight_map;
  const StreamArgs& args;
  const StreamShared& shared;

  __device__ __forceinline__ unsigned char* stage_at(int stage) const { return shared.ring + stage * args.stage_bytes; }

  // Of tokens; what lies beyond num_tokens is not used.
  __device__ __forceinline__ int scale_bytes() const {
    if constexpr (!kHasBlocks<kWeights>) return 0;
    return static_cast<int>(min(args.x_scale_stride, std::int64_t{kTokens}) * sizeof(float));
  }

  // Announces all bytes of a stage and starts to copy its weights.
  __device__ __forceinline__ void copy_weights(const StreamStep& step, int stage) const {
    ptx::Barrier* full = shared.full + stage;
    unsigned char* target = stage_at(stage) + S::kXBytes;
    const int row = step.tile * args.rows_per_tile;
    const int panels = min(S::kPanels, args.num_panels - step.first_panel);
    const int x_bytes = S::kXBytes + panels * scale_bytes();
    if constexpr (kIsQ4<kWeights>) {
      const int num_bytes = panels * static_cast<int>(sizeof(Q4UnitSm90));
      const int num_units = min(args.rows_per_tile, args.output.num_rows - row) / 8;
      ptx::barrier_arrive_expect(full, x_bytes + num_units * num_bytes);
      const Q4UnitSm90* unit = args.units + static_cast<std::int64_t>(row / 8) * args.num_panels + step.first_panel;
      for (int i = 0; i < num_units; ++i) {
        ptx::load_bytes(target + i * S::kPanels * sizeof(Q4UnitSm90), unit + i * args.num_panels, num_bytes, full,
                        ptx::kEvictFirst);
      }
    } else {
      ptx::barrier_arrive_expect(full, x_bytes + S::kPanels * args.rows_per_tile * ptx::kPanelBytes);
      ptx::load_box(target, weight_map, row, step.first_panel, full, ptx::kEvictFirst);
    }
  }

  __device__ __forceinline__ void copy_tokens(const StreamStep& step, int stage) const {
    ptx::Barrier* full = shared.full + stage;
    ptx::load_box(stage_at(stage), x_map, 0, step.first_panel, full, ptx::kEvictLast);
    if constexpr (kHasBlocks<kWeights>) {
      for (int i = 0; i < min(S::kPanels, args.num_panels - step.first_panel); ++i) {
        ptx::load_bytes(shared.x_scale + (stage * S::kPanels + i) * kTokens,
                        args.x_scale + (step.first_panel + i) * args.x_scale_stride, scale_bytes(), full,
                        ptx::kEvictLast);
      }
    }
  }

  // Weights may be read before earlier kernels have ended, tokens may not.
  __device__ __forceinline__ void run(int num_steps) const {
    const int num_ahead = min(num_steps, args.num_stages);
    StreamStep step = {static_cast<int>(blockIdx.x), 0};
    for (int i = 0; i < num_ahead; ++i, step.advance(args, S::kPanels)) copy_weights(step, i);
    ptx::wait_for_earlier_kernels();
    step = {static_cast<int>(blockIdx.x), 0};
    for (int i = 0; i < num_ahead; ++i, step.advance(args, S::kPanels)) copy_tokens(step, i);
    StreamPosition at;
    for (int i = num_ahead; i < num_steps; ++i, step.advance(args, S::kPanels)) {
      ptx::barrier_wait(shared.empty + at.stage, at.parity);
      copy_weights(step, at.stage);
      copy_tokens(step, at.stage);
      at.advance(args.num_stages);
    }
  }
};

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

__device__ __forceinline__ void release_stage(ptx::Barrier* empty) {
  if ((threadIdx.x & 31) == 0) ptx::barrier_arrive(empty);
}

template <int kNum>
__device__ __forceinline__ void clear(float (&d)[kNum]) {
#pragma unroll
  for (int i = 0; i < kNum; ++i) d[i] = 0.0f;
}

// One level of sums: products follow each other without a wait; a stage is given back one stage later. Panels beyond
// the last are zeros.
template <LinearSm90Weights kWeights, int kTokens, bool kWide>
__device__ __forceinline__ void stream_tile(float (&d)[kTokens / 2], const StreamArgs& args, const StreamShared& shared,
                                            int warpgroup, StreamPosition& at) {
  using S = Stream<kWeights, kTokens, kWide>;
  const std::uint32_t warpgroup_offset = warpgroup * (kWarpgroupRows * ptx::kPanelBytes >> 4);
  const std::uint32_t panel_step = args.rows_per_tile * (ptx::kPanelBytes >> 4);
  const int steps = S::steps_per_tile(args);
  int previous = 0;
  clear(d);
  for (int step = 0; step < steps; ++step) {
    ptx::barrier_wait(shared.full + at.stage, at.parity);
    const std::uint32_t x = ptx::tile_descriptor(shared.ring + at.stage * args.stage_bytes);
    const std::uint32_t weight = x + (S::kXBytes >> 4) + warpgroup_offset;
    ptx::pin(d);
    ptx::product_fence();
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel) {
      multiply_panel<kOperandOf<kWeights>, kTokens>(d, weight + panel * panel_step, x + panel * (S::kXPanelBytes >> 4),
                                                    true);
    }
    ptx::product_commit();
    if (step > 0) {
      ptx::product_wait<1>();
      release_stage(shared.empty + previous);
    }
    previous = at.stage;
    at.advance(args.num_stages);
  }
  ptx::product_wait<0>();
  ptx::pin(d);
  release_stage(shared.empty + previous);
}

// Two rows of W of a lane within its tile.
struct LaneRows {
  int low;   // of d[0], d[1]
  int high;  // of d[2], d[3]
};

// Sums of blocks: one for each panel of a stage, then added in order.
template <int kTokens, bool kWide>
__device__ __forceinline__ void stream_tile_by_blocks(float (&d)[kTokens / 2], const StreamArgs& args,
                                                      const StreamShared& shared, int warpgroup, LaneRows rows,
                                                      int tile, StreamPosition& at) {
  constexpr LinearSm90Weights kWeights = LinearSm90Weights::kFp8Blocks;
  using S = Stream<kWeights, kTokens, kWide>;
  const std::uint32_t warpgroup_offset = warpgroup * (kWarpgroupRows * ptx::kPanelBytes >> 4);
  const std::uint32_t panel_step = args.rows_per_tile * (ptx::kPanelBytes >> 4);
  const int steps = S::steps_per_tile(args);
  const int first_row = tile * args.rows_per_tile;
  const auto scale_of = [&](int local_row) {
    const int block = (first_row + local_row) / kScaleBlock - first_row / kScaleBlock;
    return shared.weight_scale + min(block, 1) * args.num_panels;
  };
  const float* low_scale = scale_of(rows.low);
  const float* high_scale = scale_of(rows.high);
  const int lane_token = 2 * (static_cast<int>(threadIdx.x) & 3);
  clear(d);
  for (int step = 0; step < steps; ++step) {
    ptx::barrier_wait(shared.full + at.stage, at.parity);
    const std::uint32_t x = ptx::tile_descriptor(shared.ring + at.stage * args.stage_bytes);
    const std::uint32_t weight = x + (S::kXBytes >> 4) + warpgroup_offset;
    float parts[S::kPanels][kTokens / 2];
    ptx::product_fence();
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel) {
      multiply_panel<ptx::Operand::kE4M3, kTokens>(parts[panel], weight + panel * panel_step,
                                                   x + panel * (S::kXPanelBytes >> 4), false);
    }
    ptx::product_commit();
    ptx::product_wait<0>();
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel) {
      ptx::pin(parts[panel]);
      const int k = step * S::kPanels + panel;
      if (k >= args.num_panels) break;
      const float* x_scale = shared.x_scale + (at.stage * S::kPanels + panel) * kTokens + lane_token;
      const float weight_scale[2] = {low_scale[k], high_scale[k]};
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        const float2 scale = *reinterpret_cast<const float2*>(x_scale + 8 * j);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          float* sum = d + 4 * j + 2 * row;
          const float* add = parts[panel] + 4 * j + 2 * row;
          sum[0] = fmaf(add[0], scale.x * weight_scale[row], sum[0]);
          sum[1] = fmaf(add[1], scale.y * weight_scale[row], sum[1]);
        }
      }
    }
    release_stage(shared.empty + at.stage);
    at.advance(args.num_stages);
  }
}

// Scales of the rows of a tile, which lie in at most two blocks, into shared memory, by all consumers.
__device__ __forceinline__ void load_weight_scales(const StreamArgs& args, const StreamShared& shared, int tile,
                                                   int num_threads) {
  const int first_block = tile * args.rows_per_tile / kScaleBlock;
  const int last_block = (args.output.num_rows - 1) / kScaleBlock;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * args.num_panels; i += num_threads) {
    const std::int64_t block = min(first_block + i / args.num_panels, last_block);
    shared.weight_scale[i] = __ldg(args.weight_scale + block * args.num_panels + i % args.num_panels);
  }
}

// ---- 4-bit weights --------------------------------------------------------------------------------------------------

// Constants of expand_codes in registers, where one instruction takes both: as literals they cost one each.
struct CodeMasks {
  std::uint32_t code;  // 4 bits of either half
  std::uint32_t float_128;
};

__device__ __forceinline__ CodeMasks code_masks() {
  CodeMasks masks;
  asm volatile("mov.b32 %0, 0x000F000F;\nmov.b32 %1, 0x43004300;" : "=r"(masks.code), "=r"(masks.float_128));
  return masks;
}

// 8 codes of one row and half a unit to 4 pairs of bf16: codes become 128 + q by their bits, and q * scale + min is
// rounded once.
__device__ __forceinline__ void expand_codes(std::uint32_t codes, const CodeMasks& masks, std::uint32_t scale_min,
                                             std::uint32_t (&pairs)[4]) {
  const __nv_bfloat162 both = reinterpret_cast<const __nv_bfloat162&>(scale_min);
  const __nv_bfloat162 scale = __low2bfloat162(both);
  const __nv_bfloat162 min_value = __high2bfloat162(both);
  const __nv_bfloat162 offset = reinterpret_cast<const __nv_bfloat162&>(masks.float_128);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"  // (codes & mask) | 128
        : "=r"(bits)
        : "r"(codes >> (4 * i)), "r"(masks.code), "r"(masks.float_128));
    const __nv_bfloat162 q = __hsub2(reinterpret_cast<const __nv_bfloat162&>(bits), offset);
    const __nv_bfloat162 weight = __hfma2(q, scale, min_value);
    pairs[i] = reinterpret_cast<const std::uint32_t&>(weight);
  }
}

// The operand registers of one panel: [instruction][register].
using PanelRegisters = std::uint32_t[ptx::kInstructionsPerPanel][4];

// A lane's weights of one unit, into the registers of its low (0) or high (1) row. Zeros unless `exists`.
__device__ __forceinline__ void expand_unit(const Q4UnitSm90* unit, const CodeMasks& masks, int row, bool exists,
                                            PanelRegisters& registers) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint2 codes = *reinterpret_cast<const uint2*>(unit->codes[lane]);
  const uint2 scales = *reinterpret_cast<const uint2*>(unit->scale_min[lane / 4]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t scale_min = half == 0 ? scales.x : scales.y;
    std::uint32_t pairs[4];
    expand_codes(half == 0 ? codes.x : codes.y, masks, exists ? scale_min : 0, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) registers[2 * half + i / 2][2 * (i % 2) + row] = pairs[i];
  }
}

__device__ __forceinline__ void keep_until_here(const PanelRegisters& registers) {
#pragma unroll
  for (int i = 0; i < ptx::kInstructionsPerPanel; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" ::"r"(registers[i][j]));
  }
}

// A warp's units in a tile: one, or two for 16 rows. A warp without rows takes others', to no effect.
struct WarpUnits {
  int low;
  int high;
  bool has_high;
};

// While the tensor core multiplies one panel, the lanes expand the next.
template <int kTokens, bool kWide>
__device__ __forceinline__ void stream_q4_tile(float (&d)[kTokens / 2], const StreamArgs& args,
                                               const StreamShared& shared, const WarpUnits& units,
                                               const CodeMasks& masks, StreamPosition& at) {
  using S = Stream<LinearSm90Weights::kQ4, kTokens, kWide>;
  static_assert(S::kPanels % 2 == 0, "a panel's registers are chosen by its place in the stage");
  const int steps = S::steps_per_tile(args);
  PanelRegisters registers[2] = {};
  const auto expand = [&](int stage, int step, int panel, PanelRegisters& into) {
    const unsigned char* weight = shared.ring + stage * args.stage_bytes + S::kXBytes;
    const auto* unit = reinterpret_cast<const Q4UnitSm90*>(weight) + panel;
    // Beyond the last panel x is zero, but what lies in the ring may be no number.
    const bool exists = step * S::kPanels + panel < args.num_panels;
    expand_unit(unit + units.low * S::kPanels, masks, 0, exists, into);
    if (kWide || units.has_high) expand_unit(unit + units.high * S::kPanels, masks, 1, exists, into);
  };
  clear(d);
  ptx::barrier_wait(shared.full + at.stage, at.parity);
  expand(at.stage, 0, 0, registers[0]);
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t x = ptx::tile_descriptor(shared.ring + at.stage * args.stage_bytes);
    StreamPosition next = at;
    next.advance(args.num_stages);
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel) {
      ptx::pin(d);
      ptx::product_fence();
#pragma unroll
      for (int k = 0; k < ptx::kInstructionsPerPanel; ++k) {
        ptx::RegisterProduct<kTokens>::run(d, registers[panel % 2][k],
                                           x + panel * (S::kXPanelBytes >> 4) + k * ptx::kDescriptorStep, true);
      }
      ptx::product_commit();
      if (panel + 1 < S::kPanels) {
        expand(at.stage, step, panel + 1, registers[(panel + 1) % 2]);
      } else if (step + 1 < steps) {
        ptx::barrier_wait(shared.full + next.stage, next.parity);
        expand(next.stage, step + 1, 0, registers[0]);
      }
      ptx::product_wait<0>();
      keep_until_here(registers[panel % 2]);
    }
    release_stage(shared.empty + at.stage);
    at = next;
  }
  ptx::pin(d);
}

// ---- results --------------------------------------------------------------------------------------------------------

template <int kTokens>
__device__ __forceinline__ void store_stream_row(const StreamArgs& args, int tile, int local_row, const float* d,
                                                 float scale) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int row = tile * args.rows_per_tile + local_row;
  const bool exists = local_row < args.rows_per_tile && row < args.output.num_rows;
  const bool gated_rows = is_gated(args.output.epilogue);
#pragma unroll
  for (int i = 0; i < kTokens / 4; ++i) {
    const int token = 8 * (i / 2) + 2 * (lane & 3) + i % 2;
    float value = d[4 * (i / 2) + i % 2] * scale;
    if (gated_rows) {
      // The row after an even one is in the next quad.
      value = gated(args.output.epilogue, value, __shfl_down_sync(0xFFFFFFFF, value, 4));
      if (exists && row % 2 == 0 && token < args.output.num_tokens) store_value(args.output, token, row / 2, value);
    } else if (exists && token < args.output.num_tokens) {
      store_value(args.output, token, row, value);
    }
  }
}

// All of a block's tiles, by one of its multiplying threads.
template <LinearSm90Weights kWeights, int kTokens, bool kWide>
__device__ __forceinline__ void multiply_stream(const StreamArgs& args, const StreamShared& shared, int tiles_here) {
  using S = Stream<kWeights, kTokens, kWide>;
  constexpr bool kQ4 = kIsQ4<kWeights>;
  if constexpr (kHasBlocks<kWeights>) {
    load_weight_scales(args, shared, static_cast<int>(blockIdx.x), S::kConsumers);
    ptx::named_barrier_sync(1, S::kConsumers);
  }
  ptx::wait_for_earlier_kernels();
  float scale = 1.0f;
  if constexpr (kWeights == LinearSm90Weights::kFp8) scale = *args.x_scale * *args.weight_scale;

  const int warpgroup = kWide ? static_cast<int>(threadIdx.x) / 128 : 0;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  // Few 4-bit rows are spread over all four warps, 8 each, as expanding them takes long.
  const bool one_unit = kQ4 && !kWide && args.rows_per_tile <= 32;
  LaneRows rows;
  rows.low = (one_unit ? 8 : 16) * warp + lane / 4;
  rows.high = one_unit ? args.rows_per_tile : rows.low + 8;  // none
  const int last_unit = args.rows_per_tile / 8 - 1;
  const WarpUnits units = {min(rows.low / 8, last_unit), min(rows.low / 8 + 1, last_unit), !one_unit};
  const CodeMasks masks = code_masks();

  float d[kTokens / 2];
  StreamPosition at;
  for (int i = 0; i < tiles_here; ++i) {
    const int tile = static_cast<int>(blockIdx.x) + i * static_cast<int>(gridDim.x);
    if constexpr (kHasBlocks<kWeights>) {
      if (i > 0) {
        ptx::named_barrier_sync(1, S::kConsumers);
        load_weight_scales(args, shared, tile, S::kConsumers);
        ptx::named_barrier_sync(1, S::kConsumers);
      }
      stream_tile_by_blocks<kTokens, kWide>(d, args, shared, warpgroup, rows, tile, at);
    } else if constexpr (kQ4) {
      stream_q4_tile<kTokens, kWide>(d, args, shared, units, masks, at);
    } else {
      stream_tile<kWeights, kTokens, kWide>(d, args, shared, warpgroup, at);
    }
    store_stream_row<kTokens>(args, tile, rows.low, d, scale);
    store_stream_row<kTokens>(args, tile, rows.high, d + 2, scale);
  }
}

template <LinearSm90Weights kWeights, int kTokens, bool kWide>
__global__ void __launch_bounds__(Stream<kWeights, kTokens, kWide>::kConsumers + 32, 1)
    stream_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap weight_map,
                  const StreamArgs args) {
  using S = Stream<kWeights, kTokens, kWide>;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  StreamShared shared;
  shared.ring = shared_memory;
  shared.full = reinterpret_cast<ptx::Barrier*>(shared.ring + args.num_stages * args.stage_bytes + kStreamOverread);
  shared.empty = shared.full + kMaxStreamStages;
  shared.x_scale = reinterpret_cast<float*>(shared.full + 2 * kMaxStreamStages);
  shared.weight_scale = shared.x_scale + args.num_stages * S::kPanels * kTokens;

  if (threadIdx.x == 0) {
    if (ptx::shared_address(shared.ring) % 1024 != 0) __trap();
    for (int i = 0; i < args.num_stages; ++i) {
      ptx::barrier_init(shared.full + i, 1);
      ptx::barrier_init(shared.empty + i, S::kConsumers / 32);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  ptx::allow_next_kernel();

  const int tiles_here =
      (args.num_tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  if (threadIdx.x < S::kConsumers) {
    multiply_stream<kWeights, kTokens, kWide>(args, shared, tiles_here);
  } else if (threadIdx.x == S::kConsumers) {
    const StreamCopy<kWeights, kTokens, kWide> copy = {&x_map, &weight_map, args, shared};
    copy.run(tiles_here * S::steps_per_tile(args));
  }
}

}  // namespace thalweg::kernels::sm90
