// The fast versions' common text, compiled once for each instruction set with its `Simd`.
//
// For each tile of 64 keys: scores of all rows, a running softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et
// al. 2022), the weighted sum of values. Each score is one chain of fused multiply-adds over rising dimensions, each
// output one chain over rising keys; how many rows or vectors are in flight beside it changes no bit. A row's
// keys outside its limits are left out of the chains, not multiplied by zero: a key that is infinite, or memory that
// was never written, does no harm.
#pragma once

#include <cstdint>

#include "kernels/attention/paged_attention/layout.h"
#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {
namespace {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

constexpr float kLog2E = 1.44269504088896340736F;
constexpr float kNothing = -__builtin_inff();  // highest score of no keys
constexpr std::int32_t kGroups = kTile / kTokenGroup;

constexpr std::int32_t smaller(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
constexpr std::int32_t larger(std::int32_t a, std::int32_t b) { return a > b ? a : b; }

/// 2^x within 1.4 units in the last place, 1 for 0, 0 below -126. 2^round(x) times a polynomial for the rest.
template <typename Simd>
typename Simd::Vector exp2(typename Simd::Vector x) {
  const typename Simd::Vector whole = Simd::round(x);
  const typename Simd::Vector rest = Simd::subtract(x, whole);
  typename Simd::Vector y = Simd::set(0x1.41fbbcp-13F);
  y = Simd::multiply_add(y, rest, Simd::set(0x1.5f3e54p-10F));
  y = Simd::multiply_add(y, rest, Simd::set(0x1.3b2d4cp-7F));
  y = Simd::multiply_add(y, rest, Simd::set(0x1.c6aee8p-5F));
  y = Simd::multiply_add(y, rest, Simd::set(0x1.ebfbdcp-3F));
  y = Simd::multiply_add(y, rest, Simd::set(0x1.62e430p-1F));
  y = Simd::multiply_add(y, rest, Simd::set(1.0F));
  return Simd::zero_below(x, -126.0F, Simd::add_to_exponent(y, whole));
}

template <typename Simd>
float exp2_scalar(float x) {
  return Simd::first(exp2<Simd>(Simd::set(x)));
}

/// The groups of 16 keys of one tile; null where no query sees any of a group.
template <typename E>
struct Tile {
  const E* keys[kGroups];    // each [head_dim][16]
  const E* values[kGroups];  // each [head_dim / 16][16][16]
};

/// Softmax state of a task's rows.
struct Rows {
  std::int32_t head_dim;
  const float* q;  // [rows][head_dim], scaled so that weights are powers of two
  float* scores;   // [rows][kTile]
  float* sums;     // [rows][head_dim]: values weighted so far
  float highest[kMaxRows];
  float total[kMaxRows];
  float rescale[kMaxRows];  // from the weights before this tile to those with it
};

/// Keys of a tile that a row sees, [first, last).
struct Limits {
  std::int32_t first;
  std::int32_t last;
};

/// sum[r][v] += factor(r) * vector(v). The fewer of the two are held in registers, the others pass by.
template <typename Simd, int R, int NV, typename Factor, typename Load>
[[gnu::always_inline]] inline void add_products(typename Simd::Vector (&sum)[R][NV], Factor factor, Load load) {
  using Vector = typename Simd::Vector;
  if constexpr (R < NV) {
    Vector factors[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) factors[r] = factor(r);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const Vector passing = load(v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r][v] = Simd::multiply_add(factors[r], passing, sum[r][v]);
    }
  } else {
    Vector vectors[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) vectors[v] = load(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector passing = factor(r);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) sum[r][v] = Simd::multiply_add(passing, vectors[v], sum[r][v]);
    }
  }
}

/// Not inlined, as add_value_vectors below, so that the loop has all registers.
/// NV vectors of scores of R rows, from vector `first` of the tile on.
template <typename Simd, int R, int NV, typename E>
[[gnu::noinline]] void score_vectors(const Rows& rows, std::int32_t row, const Tile<E>& tile, std::int32_t first) {
  using Vector = typename Simd::Vector;
  const std::int64_t head_dim = rows.head_dim;
  const float* q = rows.q + row * head_dim;
  const E* keys[NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const std::int32_t token = (first + v) * Simd::kWidth;
    keys[v] = tile.keys[token / kTokenGroup] + token % kTokenGroup;
  }
  Vector sum[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) sum[r][v] = Simd::set(0.0F);
  }
  for (std::int64_t d = 0; d < head_dim; ++d) {
    add_products<Simd, R, NV>(
        sum, [&](int r) { return Simd::set(q[r * head_dim + d]); },
        [&](int v) { return Simd::load(keys[v] + d * kTokenGroup); });
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) Simd::store(rows.scores + (row + r) * kTile + (first + v) * Simd::kWidth, sum[r][v]);
  }
}

/// NV vectors of weighted sums of R rows, from dimension `dim` on, over the keys in `limits`.
template <typename Simd, int R, int NV, typename E>
[[gnu::noinline]] void add_value_vectors(const Rows& rows, std::int32_t row, const Tile<E>& tile, Limits limits,
                                         std::int32_t dim) {
  using Vector = typename Simd::Vector;
  const std::int64_t head_dim = rows.head_dim;
  float* sums = rows.sums + row * head_dim + dim;
  Vector sum[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Vector rescale = Simd::set(rows.rescale[row + r]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      sum[r][v] = Simd::multiply(Simd::load(sums + r * head_dim + v * Simd::kWidth), rescale);
    }
  }
  const float* weights = rows.scores + row * kTile;
  const std::int32_t panel_width = smaller(kPanel, rows.head_dim - dim / kPanel * kPanel);
  for (std::int32_t key = limits.first; key < limits.last;) {
    const std::int32_t end = smaller(limits.last, (key / kTokenGroup + 1) * kTokenGroup);
    const E* group = tile.values[key / kTokenGroup] + key % kTokenGroup * panel_width;
    const E* values[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const std::int32_t at = dim + v * Simd::kWidth;
      values[v] = group + at / kPanel * kPanel * kTokenGroup + at % kPanel;
    }
    for (std::int64_t offset = 0; key < end; ++key, offset += panel_width) {
      add_products<Simd, R, NV>(
          sum, [&](int r) { return Simd::set(weights[r * kTile + key]); },
          [&](int v) { return Simd::load(values[v] + offset); });
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) Simd::store(sums + r * head_dim + v * Simd::kWidth, sum[r][v]);
  }
}

/// Scores of R rows for the vectors [first, last) of the tile.
template <typename Simd, int R, typename E>
void score_rows(const Rows& rows, std::int32_t row, const Tile<E>& tile, std::int32_t first, std::int32_t last) {
  constexpr int kMost = Simd::template vectors_in_flight<R>();
  std::int32_t v = first;
  for (; v + kMost <= last; v += kMost) score_vectors<Simd, R, kMost>(rows, row, tile, v);
  if constexpr (kMost > 4) {
    for (; v + 4 <= last; v += 4) score_vectors<Simd, R, 4>(rows, row, tile, v);
  }
  if constexpr (kMost > 2) {
    for (; v + 2 <= last; v += 2) score_vectors<Simd, R, 2>(rows, row, tile, v);
  }
  for (; v < last; ++v) score_vectors<Simd, R, 1>(rows, row, tile, v);
}

template <typename Simd, int R, typename E>
void add_value_rows(const Rows& rows, std::int32_t row, const Tile<E>& tile, Limits limits) {
  constexpr int kMost = Simd::template vectors_in_flight<R>();
  constexpr int kWidth = Simd::kWidth;
  std::int32_t dim = 0;
  for (; dim + kMost * kWidth <= rows.head_dim; dim += kMost * kWidth) {
    add_value_vectors<Simd, R, kMost>(rows, row, tile, limits, dim);
  }
  if constexpr (kMost > 4) {
    for (; dim + 4 * kWidth <= rows.head_dim; dim += 4 * kWidth) {
      add_value_vectors<Simd, R, 4>(rows, row, tile, limits, dim);
    }
  }
  if constexpr (kMost > 2) {
    for (; dim + 2 * kWidth <= rows.head_dim; dim += 2 * kWidth) {
      add_value_vectors<Simd, R, 2>(rows, row, tile, limits, dim);
    }
  }
  for (; dim + kWidth <= rows.head_dim; dim += kWidth) add_value_vectors<Simd, R, 1>(rows, row, tile, limits, dim);
  if constexpr (kWidth > 8) {
    if (dim < rows.head_dim) add_value_vectors<typename Simd::Half, R, 1>(rows, row, tile, limits, dim);
  }
}

/// Rows of which the sums are held in registers together.
constexpr std::int32_t kMostRows = 6;

/// Calls body.operator()<R>(row) with `count` rows from `row` on cut into pieces of R <= kMostRows of nearly equal
/// size.
template <typename Body>
void for_row_pieces(std::int32_t row, std::int32_t count, Body body) {
  std::int32_t num_pieces = (count + kMostRows - 1) / kMostRows;
  while (num_pieces > 0) {
    const std::int32_t size = (count + num_pieces - 1) / num_pieces;
    switch (size) {
      case 1:
        body.template operator()<1>(row);
        break;
      case 2:
        body.template operator()<2>(row);
        break;
      case 3:
        body.template operator()<3>(row);
        break;
      case 4:
        body.template operator()<4>(row);
        break;
      case 5:
        body.template operator()<5>(row);
        break;
      default:
        body.template operator()<6>(row);
        break;
    }
    row += size;
    count -= size;
    --num_pieces;
  }
}

/// Turns the scores of `count` <= kMostRows rows into weights and moves their softmax states on. Keys outside the
/// limits weigh nothing.
template <typename Simd>
void weigh_rows(Rows& rows, std::int32_t row, std::int32_t count, Limits limits) {
  using Vector = typename Simd::Vector;
  constexpr std::int32_t kLanes = larger(8, Simd::kWidth);
  const std::int32_t first = limits.first / kTokenGroup * kTokenGroup;
  const std::int32_t last = (limits.last + kTokenGroup - 1) / kTokenGroup * kTokenGroup;
  float before[kLanes];
  float highest[kLanes];
  float rescale[kLanes];
  for (std::int32_t r = 0; r < kLanes; ++r) before[r] = highest[r] = 0.0F;

  for (std::int32_t r = 0; r < count; ++r) {
    float* scores = rows.scores + (row + r) * kTile;
    Vector most = Simd::set(kNothing);
    for (std::int32_t key = first; key < last; key += Simd::kWidth) {
      Vector score = Simd::load(scores + key);
      if (key < limits.first || key + Simd::kWidth > limits.last) {
        score = Simd::keep_lanes(score, limits.first - key, limits.last - key, kNothing);
        Simd::store(scores + key, score);
      }
      most = Simd::maximum(most, score);
    }
    const float tile_highest = Simd::reduce_maximum(most);
    before[r] = rows.highest[row + r];
    highest[r] = tile_highest > before[r] ? tile_highest : before[r];
  }
  for (std::int32_t r = 0; r < kLanes; r += Simd::kWidth) {
    const Vector difference = Simd::subtract(Simd::load(before + r), Simd::load(highest + r));
    Simd::store(rescale + r, exp2<Simd>(difference));
  }
  for (std::int32_t r = 0; r < count; ++r) {
    float* scores = rows.scores + (row + r) * kTile;
    const Vector shift = Simd::set(highest[r]);
    Vector total = Simd::set(0.0F);
    for (std::int32_t key = first; key < last; key += Simd::kWidth) {
      const Vector weight = exp2<Simd>(Simd::subtract(Simd::load(scores + key), shift));
      Simd::store(scores + key, weight);
      total = Simd::add(total, weight);
    }
    rows.rescale[row + r] = rescale[r];
    rows.highest[row + r] = highest[r];
    rows.total[row + r] = rows.total[row + r] * rescale[r] + Simd::reduce_add(total);
  }
}

/// The queries of a task against the tile that begins at `position`.
struct TileView {
  const AttendArgs* args;
  std::int32_t position;

  Limits limits(std::int32_t query) const {
    const std::int32_t at = args->first_position + query - position;
    return {args->window > 0 ? larger(0, at - args->window + 1) : 0, smaller(kTile, at + 1)};
  }
};

template <typename Simd, typename E>
void attend_tile(const TileView& view, Rows& rows, const Tile<E>& tile) {
  const AttendArgs& args = *view.args;
  const std::int32_t num_heads = args.num_group_heads;
  const Limits first = view.limits(0);
  const Limits last = view.limits(args.num_queries - 1);
  constexpr std::int32_t kVectorsPerGroup = kTokenGroup / Simd::kWidth;
  const std::int32_t first_vector = first.first / kTokenGroup * kVectorsPerGroup;
  const std::int32_t last_vector = (last.last + kTokenGroup - 1) / kTokenGroup * kVectorsPerGroup;
  const bool uniform = first.first == last.first && first.last == last.last;

  for_row_pieces(0, args.num_queries * num_heads, [&]<int R>(std::int32_t row) {
    score_rows<Simd, R>(rows, row, tile, first_vector, last_vector);
    if (!uniform) return;
    weigh_rows<Simd>(rows, row, R, first);
    add_value_rows<Simd, R>(rows, row, tile, first);
  });
  if (uniform) return;
  for (std::int32_t query = 0; query < args.num_queries; ++query) {
    const Limits limits = view.limits(query);
    if (limits.first >= limits.last) continue;
    for_row_pieces(query * num_heads, num_heads, [&]<int R>(std::int32_t row) {
      weigh_rows<Simd>(rows, row, R, limits);
      add_value_rows<Simd, R>(rows, row, tile, limits);
    });
  }
}

/// Where the groups of the tile at `position` lie.
template <typename E>
Tile<E> find_tile(const AttendArgs& args, const TileView& view) {
  const SequenceBlocks& blocks = args.blocks;
  const std::int32_t first_group = view.limits(0).first / kTokenGroup;
  const std::int32_t end = view.limits(args.num_queries - 1).last;
  Tile<E> tile{};
  for (std::int32_t group = first_group; group * kTokenGroup < end; ++group) {
    const std::int32_t key = view.position + group * kTokenGroup;
    const std::int32_t place = key % blocks.block_size;
    const auto* block =
        reinterpret_cast<const E*>(blocks.base + blocks.block_table[key / blocks.block_size] * blocks.block_stride);
    tile.keys[group] = block + key_offset(blocks, args.kv_head, place, 0);
    tile.values[group] = block + value_offset(blocks, args.kv_head, place, 0);
  }
  return tile;
}

/// out = what was seen so far, joined with one more partition. `seen` is the state of `out`.
struct Seen {
  float highest = kNothing;
  float total = 0.0F;
};

template <typename Simd>
void join(Seen& seen, float* out, std::int32_t head_dim, float highest, float total, const float* sums) {
  using Vector = typename Simd::Vector;
  if (total == 0.0F) return;  // no keys of this partition
  if (seen.total == 0.0F) {
    for (std::int32_t d = 0; d < head_dim; d += 8) Simd::copy8(out + d, sums + d);
    seen = {highest, total};
    return;
  }
  const float joint = highest > seen.highest ? highest : seen.highest;
  const float old_factor = exp2_scalar<Simd>(seen.highest - joint);
  const float new_factor = exp2_scalar<Simd>(highest - joint);
  std::int32_t d = 0;
  const Vector old_factors = Simd::set(old_factor);
  const Vector new_factors = Simd::set(new_factor);
  for (; d + Simd::kWidth <= head_dim; d += Simd::kWidth) {
    const Vector old_sums = Simd::multiply(Simd::load(out + d), old_factors);
    Simd::store(out + d, Simd::multiply_add(Simd::load(sums + d), new_factors, old_sums));
  }
  for (; d < head_dim; ++d) out[d] = __builtin_fmaf(sums[d], new_factor, out[d] * old_factor);
  seen = {joint, seen.total * old_factor + total * new_factor};
}

/// Rows at `out` become averages.
inline void divide(float* out, std::int32_t head_dim, float total) {
  const float factor = 1.0F / total;
  for (std::int32_t d = 0; d < head_dim; ++d) out[d] *= factor;
}

template <typename Simd, typename E>
void attend(const AttendArgs& args) {
  const std::int32_t head_dim = args.blocks.head_dim;
  const std::int32_t num_heads = args.num_group_heads;
  const std::int32_t num_rows = args.num_queries * num_heads;
  float* q = args.scratch;
  float* sums = q + num_rows * head_dim;
  Rows rows{.head_dim = head_dim, .q = q, .scores = sums + num_rows * head_dim, .sums = sums};

  const float factor = args.scale * kLog2E;
  for (std::int32_t row = 0; row < num_rows; ++row) {
    const float* from = args.q + row / num_heads * args.q_stride + std::int64_t{row % num_heads} * head_dim;
    for (std::int32_t d = 0; d < head_dim; ++d) q[row * head_dim + d] = from[d] * factor;
  }

  const std::int32_t first_key = args.window > 0 ? larger(0, args.first_position - args.window + 1) : 0;
  const std::int32_t end_key = args.first_position + args.num_queries;
  std::int32_t partition = first_key / kPartition;
  std::int32_t end_partition = (end_key + kPartition - 1) / kPartition;
  if (args.partial != nullptr) {
    partition = args.partition;
    end_partition = partition + 1;
  }
  Seen seen[kMaxRows];
  for (; partition < end_partition; ++partition) {
    for (std::int32_t row = 0; row < num_rows; ++row) {
      rows.highest[row] = kNothing;
      rows.total[row] = 0.0F;
    }
    for (std::int32_t i = 0; i < num_rows * head_dim; i += 8) Simd::zero8(sums + i);
    const std::int32_t first_tile = larger(first_key, partition * kPartition) / kTile;
    const std::int32_t end_tile = (smaller(end_key, (partition + 1) * kPartition) + kTile - 1) / kTile;
    for (std::int32_t tile = first_tile; tile < end_tile; ++tile) {
      const TileView view{&args, tile * kTile};
      attend_tile<Simd>(view, rows, find_tile<E>(args, view));
    }
    for (std::int32_t row = 0; row < num_rows; ++row) {
      const float* row_sums = sums + row * head_dim;
      if (args.partial != nullptr) {
        float* state = args.partial + std::int64_t{row} * (2 + head_dim);
        state[0] = rows.highest[row];
        state[1] = rows.total[row];
        for (std::int32_t d = 0; d < head_dim; d += 8) Simd::copy8(state + 2 + d, row_sums + d);
      } else {
        float* out = args.out + row / num_heads * args.out_stride + std::int64_t{row % num_heads} * head_dim;
        join<Simd>(seen[row], out, head_dim, rows.highest[row], rows.total[row], row_sums);
      }
    }
  }
  if (args.partial != nullptr) return;
  for (std::int32_t row = 0; row < num_rows; ++row) {
    divide(args.out + row / num_heads * args.out_stride + std::int64_t{row % num_heads} * head_dim, head_dim,
           seen[row].total);
  }
}

template <typename Simd>
void attend_any(const AttendArgs& args) {
  switch (args.blocks.dtype) {
    case device::DType::kF16:
      return attend<Simd, F16>(args);
    case device::DType::kBF16:
      return attend<Simd, BF16>(args);
    default:
      return attend<Simd, float>(args);
  }
}

template <typename Simd>
void combine_any(const CombineArgs& args) {
  const std::int32_t num_rows = args.num_queries * args.num_group_heads;
  const std::int64_t state_size = 2 + args.head_dim;
  for (std::int32_t row = 0; row < num_rows; ++row) {
    float* out = args.out + row / args.num_group_heads * args.out_stride +
                 std::int64_t{row % args.num_group_heads} * args.head_dim;
    Seen seen;
    for (std::int32_t partition = 0; partition < args.num_partitions; ++partition) {
      const float* state = args.partials + (std::int64_t{partition} * num_rows + row) * state_size;
      join<Simd>(seen, out, args.head_dim, state[0], state[1], state + 2);
    }
    divide(out, args.head_dim, seen.total);
  }
}

template <typename Simd, typename E>
void write_kv(const WriteKvArgs& args) {
  const SequenceBlocks& blocks = args.blocks;
  for (std::int32_t token = 0; token < args.num_tokens; ++token) {
    const std::int32_t position = args.positions[token];
    const std::int32_t place = position % blocks.block_size;
    auto* block =
        reinterpret_cast<E*>(blocks.base + blocks.block_table[position / blocks.block_size] * blocks.block_stride);
    for (std::int32_t head = 0; head < blocks.num_kv_heads; ++head) {
      const float* k = args.k + token * args.k_stride + std::int64_t{head} * blocks.head_dim;
      const float* v = args.v + token * args.v_stride + std::int64_t{head} * blocks.head_dim;
      E* keys = block + key_offset(blocks, head, place, 0);
      for (std::int32_t d = 0; d < blocks.head_dim; d += 8) {
        E rounded[8];
        Simd::narrow8(rounded, k + d);
        for (std::int32_t i = 0; i < 8; ++i) keys[(d + i) * kTokenGroup] = rounded[i];
        Simd::narrow8(block + value_offset(blocks, head, place, d), v + d);
      }
    }
  }
}

template <typename Simd>
void write_kv_any(const WriteKvArgs& args) {
  switch (args.blocks.dtype) {
    case device::DType::kF16:
      return write_kv<Simd, F16>(args);
    case device::DType::kBF16:
      return write_kv<Simd, BF16>(args);
    default:
      return write_kv<Simd, float>(args);
  }
}

}  // namespace
}  // namespace thalweg::kernels::attention
