// Every version against the definition, and the promise that nobody else's tokens change a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/attention/paged_attention/cases.h"
#include "kernels/attention/paged_attention/element.h"

namespace thalweg::kernels::attention {
namespace {

using device::CpuLevel;
using device::DType;

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> result;
  for (const CpuLevel level : {CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvx512}) {
    if (level <= device::detect_cpu_level()) result.push_back(level);
  }
  return result;
}

/// Queries, keys and values of all positions of one sequence, [context, heads, head_dim], by a seed of its own.
struct Sequence {
  std::vector<float> q, k, v;
  std::vector<std::int32_t> block_ids;
};

/// A cache full of NaN, and sequences in it at random blocks. Strides are wider than the rows.
class World {
 public:
  static constexpr std::int64_t kPadding = 8;

  World(const Case& shape, std::uint32_t seed) : shape_(shape) {
    kv_.layout = {shape.num_kv_heads, shape.head_dim, shape.block_size, shape.dtype};
    kv_.block_stride = kv_.layout.bytes_per_block() + 64;
    std::int32_t num_blocks = 1;  // block 0 belongs to nobody
    for (const RowShape& row : shape.rows) num_blocks += blocks_for(row.context_len);
    memory_ = device::Buffer(num_blocks * kv_.block_stride);
    std::memset(memory_.data(), 0xFF, memory_.size());
    kv_.base = memory_.data();

    std::vector<std::int32_t> ids(num_blocks - 1);
    std::iota(ids.begin(), ids.end(), 1);
    std::mt19937 random(seed);
    std::ranges::shuffle(ids, random);
    for (std::size_t row = 0; row < shape.rows.size(); ++row) {
      Sequence sequence = make_sequence(shape.rows[row].context_len, seed + 7919 * static_cast<std::uint32_t>(row));
      sequence.block_ids.assign(ids.end() - blocks_for(shape.rows[row].context_len), ids.end());
      ids.resize(ids.size() - sequence.block_ids.size());
      sequences_.push_back(std::move(sequence));
    }
  }

  const Case& shape() const { return shape_; }
  const PagedKv& kv() const { return kv_; }
  const Sequence& sequence(std::size_t row) const { return sequences_[row]; }
  std::int64_t q_size() const { return std::int64_t{shape_.num_heads} * shape_.head_dim; }
  std::int64_t kv_size() const { return std::int64_t{shape_.num_kv_heads} * shape_.head_dim; }

  /// Positions [first, last) of a sequence.
  struct Piece {
    std::size_t row;
    std::int32_t first;
    std::int32_t last;
  };

  /// One step: writes the pieces' keys and values and returns the attention of their tokens, [tokens, heads, head_dim].
  std::vector<float> step(device::Stream& stream, const std::vector<Piece>& pieces) {
    std::vector<std::int32_t> positions, cu_seqlens{0}, context_lens, block_tables;
    std::size_t max_blocks = 1;
    for (const Piece& piece : pieces) max_blocks = std::max(max_blocks, sequences_[piece.row].block_ids.size());
    std::vector<float> q, k, v;
    for (const Piece& piece : pieces) {
      const Sequence& sequence = sequences_[piece.row];
      for (std::int32_t position = piece.first; position < piece.last; ++position) {
        positions.push_back(position);
        append(q, sequence.q, position, q_size());
        append(k, sequence.k, position, kv_size());
        append(v, sequence.v, position, kv_size());
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(positions.size()));
      context_lens.push_back(piece.last);
      for (std::size_t i = 0; i < max_blocks; ++i) {
        const bool used = i < static_cast<std::size_t>(blocks_for(piece.last));
        block_tables.push_back(used ? sequence.block_ids[i] : 0);
      }
    }
    const PagedBatch batch{positions, cu_seqlens, context_lens, block_tables, static_cast<std::int32_t>(max_blocks)};
    write_kv(stream, kv_, batch, k.data(), kv_size() + kPadding, v.data(), kv_size() + kPadding);

    std::vector<float> out(positions.size() * (q_size() + kPadding), kUntouched);
    paged_attention(stream, {.q = q.data(),
                             .q_stride = q_size() + kPadding,
                             .num_heads = shape_.num_heads,
                             .cache = kv_,
                             .batch = batch,
                             .scale = scale(),
                             .window = shape_.window,
                             .out = out.data(),
                             .out_stride = q_size() + kPadding});
    std::vector<float> rows;
    for (std::size_t token = 0; token < positions.size(); ++token) {
      const auto begin = out.begin() + static_cast<std::ptrdiff_t>(token * (q_size() + kPadding));
      rows.insert(rows.end(), begin, begin + q_size());
      EXPECT_TRUE(std::all_of(begin + q_size(), begin + q_size() + kPadding, [](float x) { return x == kUntouched; }));
    }
    return rows;
  }

  /// The case's step, after the context before it has been written.
  std::vector<float> run(device::Stream& stream) {
    std::vector<Piece> before, now;
    for (std::size_t row = 0; row < shape_.rows.size(); ++row) {
      const std::int32_t first = shape_.rows[row].context_len - shape_.rows[row].num_new;
      before.push_back({row, 0, first});
      now.push_back({row, first, shape_.rows[row].context_len});
    }
    write_only(stream, before);
    return step(stream, now);
  }

  void write_only(device::Stream& stream, const std::vector<Piece>& pieces) {
    std::vector<std::int32_t> positions, cu_seqlens{0}, context_lens, block_tables;
    std::vector<float> k, v;
    std::size_t max_blocks = 1;
    for (const Piece& piece : pieces) max_blocks = std::max(max_blocks, sequences_[piece.row].block_ids.size());
    for (const Piece& piece : pieces) {
      for (std::int32_t position = piece.first; position < piece.last; ++position) {
        positions.push_back(position);
        append(k, sequences_[piece.row].k, position, kv_size());
        append(v, sequences_[piece.row].v, position, kv_size());
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(positions.size()));
      context_lens.push_back(piece.last);
      std::vector<std::int32_t> ids = sequences_[piece.row].block_ids;
      ids.resize(max_blocks);
      block_tables.insert(block_tables.end(), ids.begin(), ids.end());
    }
    write_kv(stream, kv_, {positions, cu_seqlens, context_lens, block_tables, static_cast<std::int32_t>(max_blocks)},
             k.data(), kv_size() + kPadding, v.data(), kv_size() + kPadding);
  }

  /// Makes keys and values from position `first` on infinite.
  void spoil(std::size_t row, std::int32_t first) {
    std::fill(sequences_[row].k.begin() + first * kv_size(), sequences_[row].k.end(), INFINITY);
    std::fill(sequences_[row].v.begin() + first * kv_size(), sequences_[row].v.end(), INFINITY);
  }

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }

  const device::Buffer& memory() const { return memory_; }

 private:
  static constexpr float kUntouched = -12345.0F;

  std::int32_t blocks_for(std::int32_t num_tokens) const {
    return (num_tokens + shape_.block_size - 1) / shape_.block_size;
  }

  Sequence make_sequence(std::int32_t context_len, std::uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Sequence result;
    result.q.resize(context_len * q_size());
    result.k.resize(context_len * kv_size());
    result.v.resize(context_len * kv_size());
    for (std::vector<float>* values : {&result.q, &result.k, &result.v}) {
      for (float& value : *values) value = normal(random);
    }
    return result;
  }

  /// A row and NaN behind it.
  static void append(std::vector<float>& to, const std::vector<float>& from, std::int32_t position, std::int64_t size) {
    to.insert(to.end(), from.begin() + position * size, from.begin() + (position + 1) * size);
    to.insert(to.end(), kPadding, std::numeric_limits<float>::quiet_NaN());
  }

  Case shape_;
  device::Buffer memory_;
  PagedKv kv_;
  std::vector<Sequence> sequences_;
};

float rounded(float value, DType dtype) {
  std::byte place[4];
  store_element(place, dtype, 0, value);
  return load_element(place, dtype, 0);
}

/// The same attention from flat arrays, without a cache.
std::vector<double> dense_attention(const World& world) {
  const Case& shape = world.shape();
  std::vector<double> result;
  for (std::size_t row = 0; row < shape.rows.size(); ++row) {
    Sequence sequence = world.sequence(row);
    for (float& value : sequence.k) value = rounded(value, shape.dtype);
    for (float& value : sequence.v) value = rounded(value, shape.dtype);
    const std::int32_t context = shape.rows[row].context_len;
    for (std::int32_t position = context - shape.rows[row].num_new; position < context; ++position) {
      for (std::int32_t head = 0; head < shape.num_heads; ++head) {
        const std::int32_t kv_head = head * shape.num_kv_heads / shape.num_heads;
        const float* q = sequence.q.data() + position * world.q_size() + head * shape.head_dim;
        std::vector<double> sums(shape.head_dim);
        double total = 0.0;
        for (std::int32_t key = 0; key <= position; ++key) {
          if (shape.window > 0 && position - key >= shape.window) continue;
          const std::int64_t offset = key * world.kv_size() + kv_head * shape.head_dim;
          const double score = std::inner_product(q, q + shape.head_dim, sequence.k.data() + offset, 0.0);
          const double weight = std::exp(score * world.scale());
          total += weight;
          for (std::int32_t d = 0; d < shape.head_dim; ++d) sums[d] += weight * sequence.v[offset + d];
        }
        for (const double sum : sums) result.push_back(sum / total);
      }
    }
  }
  return result;
}

class PagedAttention : public testing::Test {
 protected:
  device::Stream stream(CpuLevel level) { return {.cpu_level = level, .threads = &threads_}; }

  void expect_close(const Case& shape, double tolerance) {
    SCOPED_TRACE(shape.name);
    World expected_world(shape, 1);
    const std::vector<double> expected = dense_attention(expected_world);
    for (const CpuLevel level : levels()) {
      SCOPED_TRACE(device::cpu_level_name(level));
      World world(shape, 1);
      device::Stream on = stream(level);
      const std::vector<float> got = world.run(on);
      ASSERT_EQ(got.size(), expected.size());
      double worst = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::abs(got[i] - expected[i]);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
      EXPECT_LE(worst, tolerance);
    }
  }

  device::ThreadPool threads_{2, false};
};

// Values are of size 1, so the bound is absolute; the largest error seen is a fifth of it.
constexpr double kTolerance = 1e-5;

TEST_F(PagedAttention, SmokeCases) {
  for (const Case& shape : smoke_cases()) expect_close(shape, kTolerance);
}
TEST_F(PagedAttention, EdgeCases) {
  for (const Case& shape : edge_cases()) expect_close(shape, kTolerance);
}
TEST_F(PagedAttention, ModelCases) {
  for (const Case& shape : model_cases()) expect_close(shape, kTolerance);
}
TEST_F(PagedAttention, RandomCases) {
  for (const Case& shape : random_cases(20250101, 20)) expect_close(shape, kTolerance);
}

TEST_F(PagedAttention, EmptyBatchDoesNothing) {
  const std::vector<std::int32_t> cu_seqlens{0};
  for (const CpuLevel level : levels()) {
    device::Stream on = stream(level);
    PagedKv kv{.layout = {1, 64, 16, DType::kF16}};
    kv.block_stride = kv.layout.bytes_per_block();
    const PagedBatch batch{.cu_seqlens = cu_seqlens, .max_blocks_per_row = 1};
    write_kv(on, kv, batch, nullptr, 64, nullptr, 64);
    paged_attention(on, {.num_heads = 1, .cache = kv, .batch = batch});
  }
}

TEST_F(PagedAttention, EveryVersionWritesTheSameBytes) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Case shape{"write", 2, 2, 72, 32, dtype, 0, {{100, 100}, {33, 1}}};
    World expected(shape, 5);
    device::Stream reference = stream(CpuLevel::kReference);
    expected.run(reference);
    for (const CpuLevel level : levels()) {
      SCOPED_TRACE(device::cpu_level_name(level));
      World world(shape, 5);
      device::Stream on = stream(level);
      world.run(on);
      EXPECT_EQ(std::memcmp(world.memory().data(), expected.memory().data(), world.memory().size()), 0);
    }
  }
}

TEST_F(PagedAttention, ChunksGiveTheBitsOfTheWhole) {
  for (const std::int32_t window : {0, 100}) {
    const Case shape{"chunks", 6, 2, 64, 16, DType::kF16, window, {{700, 700}}};
    for (const CpuLevel level : levels()) {
      SCOPED_TRACE(device::cpu_level_name(level));
      device::Stream on = stream(level);
      World whole_world(shape, 3);
      const std::vector<float> whole = whole_world.step(on, {{0, 0, 700}});
      for (const std::vector<std::int32_t>& sizes :
           {std::vector{1, 63, 64, 65, 128, 255, 124}, std::vector{17, 300, 1, 1, 1, 380}}) {
        World world(shape, 3);
        std::vector<float> pieces;
        std::int32_t first = 0;
        for (const std::int32_t size : sizes) {
          const std::vector<float> piece = world.step(on, {{0, first, first + size}});
          pieces.insert(pieces.end(), piece.begin(), piece.end());
          first += size;
        }
        EXPECT_EQ(pieces, whole);
      }
    }
  }
}

TEST_F(PagedAttention, ABatchGivesTheBitsOfEachRowAlone) {
  Case shape{"batch", 9, 3, 64, 16, DType::kF16, 0, {}};
  for (std::int32_t row = 0; row < 64; ++row)
    shape.rows.push_back({1 + 37 * row % 590, row % 9 == 0 ? 1 + row / 3 : 1});
  for (RowShape& row : shape.rows) row.num_new = std::min(row.num_new, row.context_len);
  for (const CpuLevel level : levels()) {
    SCOPED_TRACE(device::cpu_level_name(level));
    device::Stream on = stream(level);
    World world(shape, 11);
    const std::vector<float> together = world.run(on);
    std::int64_t offset = 0;
    for (std::size_t row = 0; row < shape.rows.size(); ++row) {
      for (const int num_threads : {1, 3}) {
        device::ThreadPool threads(num_threads, false);
        device::Stream other{.cpu_level = level, .threads = &threads};
        const std::int32_t context = shape.rows[row].context_len;
        const std::vector<float> alone = world.step(other, {{row, context - shape.rows[row].num_new, context}});
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + offset)) << "row " << row;
        if (num_threads == 3) offset += static_cast<std::int64_t>(alone.size());
      }
    }
  }
}

TEST_F(PagedAttention, LaterKeysThatAreNotFiniteLeaveEarlierQueriesAlone) {
  const Case shape{"infinite", 4, 2, 64, 16, DType::kF16, 0, {{64, 64}}};
  for (const CpuLevel level : levels()) {
    SCOPED_TRACE(device::cpu_level_name(level));
    device::Stream on = stream(level);
    World clean(shape, 9);
    const std::vector<float> expected = clean.step(on, {{0, 0, 40}});
    World spoiled(shape, 9);
    spoiled.spoil(0, 40);
    std::vector<float> got = spoiled.step(on, {{0, 0, 64}});
    got.resize(expected.size());
    EXPECT_EQ(got, expected);
  }
}

}  // namespace
}  // namespace thalweg::kernels::attention
