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
#include "kernels/attention/paged_attention/dispatch.h"
#include "kernels/attention/paged_attention/element.h"

namespace thalweg::kernels::attention {

void emulated_write_kv_avx512(const WriteKvArgs& args);
void emulated_attend_avx512(const AttendArgs& args);
void emulated_combine_avx512(const CombineArgs& args);

namespace {

using device::CpuLevel;
using device::DType;

/// One version under test; `version` null is the reference.
struct Tested {
  const char* name;
  const Version* version;
};

std::vector<Tested> fast_versions() {
  static const Version emulated{CpuLevel::kAvx512, emulated_write_kv_avx512, emulated_attend_avx512,
                                emulated_combine_avx512};
  std::vector<Tested> result;
  if (device::detect_cpu_level() >= CpuLevel::kAvx2) result.push_back({"emulated avx512", &emulated});
  for (const Version& version : versions()) {
    if (version.level <= device::detect_cpu_level()) {
      result.push_back({device::cpu_level_name(version.level), &version});
    }
  }
  return result;
}

std::vector<Tested> all_versions() {
  std::vector<Tested> result = fast_versions();
  result.push_back({"reference", nullptr});
  return result;
}

/// What a version does not support the reference computes, as in paged_attention.
const Version* version_for(const Tested& tested, const KvLayout& layout, std::int32_t num_heads) {
  const bool supported = choose_version(CpuLevel::kAvx512Vnni, layout, num_heads) != nullptr;
  return supported ? tested.version : nullptr;
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
  std::vector<float> step(const Tested& tested, device::ThreadPool& threads, const std::vector<Piece>& pieces) {
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
    device::Stream stream{.threads = &threads};
    const Version* version = version_for(tested, kv_.layout, shape_.num_heads);
    write_kv_with(version, stream, kv_, batch, k.data(), kv_size() + kPadding, v.data(), kv_size() + kPadding);

    std::vector<float> out(positions.size() * (q_size() + kPadding), kUntouched);
    paged_attention_with(version, stream,
                         {.q = q.data(),
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
  std::vector<float> run(const Tested& tested, device::ThreadPool& threads) {
    std::vector<Piece> before, now;
    for (std::size_t row = 0; row < shape_.rows.size(); ++row) {
      const std::int32_t first = shape_.rows[row].context_len - shape_.rows[row].num_new;
      before.push_back({row, 0, first});
      now.push_back({row, first, shape_.rows[row].context_len});
    }
    write_only(tested, threads, before);
    return step(tested, threads, now);
  }

  void write_only(const Tested& tested, device::ThreadPool& threads, const std::vector<Piece>& pieces) {
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
    device::Stream stream{.threads = &threads};
    const Version* version = version_for(tested, kv_.layout, shape_.num_heads);
    write_kv_with(version, stream, kv_,
                  {positions, cu_seqlens, context_lens, block_tables, static_cast<std::int32_t>(max_blocks)}, k.data(),
                  kv_size() + kPadding, v.data(), kv_size() + kPadding);
  }

  /// Makes keys and values from position `first` on infinite.
  void spoil(std::size_t row, std::int32_t first) {
    std::fill(sequences_[row].k.begin() + first * kv_size(), sequences_[row].k.end(), INFINITY);
    std::fill(sequences_[row].v.begin() + first * kv_size(), sequences_[row].v.end(), INFINITY);
  }

  /// Multiplies all queries.
  void stretch(float factor) {
    for (Sequence& sequence : sequences_) {
      for (float& value : sequence.q) value *= factor;
    }
  }

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }

  const device::Buffer& memory() const { return memory_; }

 private:
  static constexpr float kUntouched = -12345.0F;

  std::int32_t blocks_for(std::int32_t num_tokens) const {
    return (num_tokens + shape_.block_size - 1) / shape_.block_size;
  }

  Sequence make_sequence(std::int32_t context_len, std::uint32_t seed) const {
    std::uint64_t state = seed;
    Sequence result;
    result.q.resize(context_len * q_size());
    result.k.resize(context_len * kv_size());
    result.v.resize(context_len * kv_size());
    for (std::vector<float>* values : {&result.q, &result.k, &result.v}) {
      for (float& value : *values) value = nearly_normal(state);
    }
    return result;
  }

  /// Of mean 0 and deviation 1: the sum of four numbers of 16 bits of one splitmix64 step.
  static float nearly_normal(std::uint64_t& state) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z ^= z >> 31;
    const std::uint64_t sum = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
    return (static_cast<float>(sum) / 65536.0F - 2.0F) * 1.7320508F;
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
  void expect_close(const Case& shape, double tolerance) {
    SCOPED_TRACE(shape.name);
    const World flat(shape, 1);
    const std::vector<double> expected = dense_attention(flat);
    for (const Tested& tested : all_versions()) {
      SCOPED_TRACE(tested.name);
      World world(shape, 1);
      const std::vector<float> got = world.run(tested, threads_);
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
  for (const Case& shape : random_cases(20250101, 12)) expect_close(shape, kTolerance);
}

TEST_F(PagedAttention, EmptyBatchDoesNothing) {
  const std::vector<std::int32_t> cu_seqlens{0};
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  PagedKv kv{.layout = {1, 64, 16, DType::kF16}};
  kv.block_stride = kv.layout.bytes_per_block();
  const PagedBatch batch{.cu_seqlens = cu_seqlens, .max_blocks_per_row = 1};
  write_kv(stream, kv, batch, nullptr, 64, nullptr, 64);
  paged_attention(stream, {.num_heads = 1, .cache = kv, .batch = batch});
}

TEST_F(PagedAttention, EveryVersionWritesTheSameBytes) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Case shape{"write", 2, 2, 72, 32, dtype, 0, {{100, 100}, {33, 1}}};
    World expected(shape, 5);
    expected.run({"reference", nullptr}, threads_);
    for (const Tested& tested : fast_versions()) {
      SCOPED_TRACE(tested.name);
      World world(shape, 5);
      world.run(tested, threads_);
      EXPECT_EQ(std::memcmp(world.memory().data(), expected.memory().data(), world.memory().size()), 0);
    }
  }
}

// The reference computes each query by itself, so the promise is about the fast ones.
TEST_F(PagedAttention, ChunksGiveTheBitsOfTheWhole) {
  for (const std::int32_t window : {0, 100}) {
    for (const std::int32_t num_heads : {2, 6}) {
      const Case shape{"chunks", num_heads, 2, 64, 16, DType::kF16, window, {{700, 700}}};
      for (const Tested& tested : fast_versions()) {
        SCOPED_TRACE(tested.name);
        World whole_world(shape, 3);
        const std::vector<float> whole = whole_world.step(tested, threads_, {{0, 0, 700}});
        for (const std::vector<std::int32_t>& sizes :
             {std::vector{1, 63, 64, 65, 128, 255, 124}, std::vector{17, 300, 1, 1, 1, 380}}) {
          World world(shape, 3);
          std::vector<float> pieces;
          std::int32_t first = 0;
          for (const std::int32_t size : sizes) {
            const std::vector<float> piece = world.step(tested, threads_, {{0, first, first + size}});
            pieces.insert(pieces.end(), piece.begin(), piece.end());
            first += size;
          }
          EXPECT_EQ(pieces, whole);
        }
      }
    }
  }
}

TEST_F(PagedAttention, ABatchGivesTheBitsOfEachRowAlone) {
  Case shape{"batch", 9, 3, 64, 16, DType::kF16, 0, {}};
  for (std::int32_t row = 0; row < 64; ++row) {
    const std::int32_t context = 1 + 37 * row % 890;
    shape.rows.push_back({context, row % 9 == 0 ? std::min(context, 1 + row / 3) : 1});
  }
  for (const Tested& tested : fast_versions()) {
    SCOPED_TRACE(tested.name);
    World world(shape, 11);
    const std::vector<float> together = world.run(tested, threads_);
    for (const int num_threads : {1, 3, 16}) {
      device::ThreadPool threads(num_threads, false);
      auto at = together.begin();
      for (std::size_t row = 0; row < shape.rows.size(); ++row) {
        const std::int32_t context = shape.rows[row].context_len;
        const std::vector<float> alone =
            world.step(tested, threads, {{row, context - shape.rows[row].num_new, context}});
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at)) << "row " << row;
        at += static_cast<std::ptrdiff_t>(alone.size());
      }
    }
  }
}

TEST_F(PagedAttention, LaterKeysThatAreNotFiniteLeaveEarlierQueriesAlone) {
  const Case shape{"infinite", 4, 2, 64, 16, DType::kF16, 0, {{64, 64}}};
  for (const Tested& tested : all_versions()) {
    SCOPED_TRACE(tested.name);
    World clean(shape, 9);
    const std::vector<float> expected = clean.step(tested, threads_, {{0, 0, 40}});
    World spoiled(shape, 9);
    spoiled.spoil(0, 40);
    std::vector<float> got = spoiled.step(tested, threads_, {{0, 0, 64}});
    got.resize(expected.size());
    EXPECT_EQ(got, expected);
  }
}

// Scores far apart: weights down to nothing, and sums that change scale in every tile.
TEST_F(PagedAttention, LargeScores) {
  const Case shape{"large", 3, 1, 64, 16, DType::kF32, 0, {{300, 300}}};
  World flat(shape, 21);
  flat.stretch(30.0F);
  const std::vector<double> expected = dense_attention(flat);
  for (const Tested& tested : all_versions()) {
    SCOPED_TRACE(tested.name);
    World world(shape, 21);
    world.stretch(30.0F);
    const std::vector<float> got = world.run(tested, threads_);
    // Scores of some hundred have fp32 steps of 1e-5.
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-3) << i;
  }
}

}  // namespace
}  // namespace thalweg::kernels::attention
