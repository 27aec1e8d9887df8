// The GPU versions against attention without tiles, and against each other bit for bit. The cache is filled with NaN
// before anything is written into it, through the kernel that writes; outputs are poisoned.
#include "kernels/rope/rope/sm90.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <vector>

#include "device/cuda/test_device.h"
#include "device/float_types.h"
#include "kernels/attention/paged_attention/sm90_step.h"

namespace thalweg::kernels::attention {
namespace {

using Elements = std::vector<std::uint16_t>;  // bf16

constexpr std::uint16_t kPoison = 0xffff;  // NaN

/// Queries, keys and values of sequence `id`: [num_tokens, heads, head_dim]. A longer one begins as a shorter one does.
Elements sequence(std::uint32_t id, std::int32_t num_tokens, std::int64_t elements_per_token) {
  std::mt19937 random(id);
  std::vector<float> pool(1 << 16);
  std::normal_distribution<float> normal;
  for (float& value : pool) value = normal(random);
  Elements elements(num_tokens * elements_per_token);
  std::uint32_t state = id * 2654435761U + 1;
  for (std::uint16_t& element : elements) {
    state = state * 1664525U + 1013904223U;
    element = device::bf16_from_float(pool[state >> 16]);
  }
  return elements;
}

float scale_of(const Case& test) { return 1.5F / std::sqrt(static_cast<float>(test.head_dim)); }

class PagedAttentionSm90Test : public testing::Test {
 protected:
  PagedAttentionSm90Test() { EXPECT_TRUE(memory_.grow(kMemoryBytes)); }

  /// The attention outputs of each row's new tokens. Row i is sequence ids[i]; what lies before its new tokens is
  /// written in steps of `history_step` tokens.
  std::vector<Elements> run(const Case& test, const std::vector<std::uint32_t>& ids, std::int32_t history_step = 999) {
    device::CudaArena arena = device::CudaArena::reserve(device_, kMemoryBytes).value();
    EXPECT_TRUE(arena.grow(kStepBytes));
    const BlockTables tables(test, ids.front());
    const std::int64_t num_bytes = cache_bytes(test, tables.num_blocks);
    CHECK(num_bytes <= static_cast<std::int64_t>(kMemoryBytes));
    stream_.fill(memory_.data(), 0xff, num_bytes);

    std::int32_t longest = 0;
    for (const RowShape& row : test.rows) longest = std::max(longest, row.context_len - row.num_new);
    for (std::int32_t start = 0; start < longest; start += history_step) {
      Case history = test;
      for (RowShape& row : history.rows) {
        const std::int32_t end = std::min(start + history_step, row.context_len - row.num_new);
        row = {.context_len = end, .num_new = std::max(end - start, 0)};
      }
      step(history, ids, tables, false);
    }
    return step(test, ids, tables, true);
  }

  std::vector<Elements> step(const Case& test, const std::vector<std::uint32_t>& ids, const BlockTables& tables,
                             bool attends) {
    device::CudaArena arena = device::CudaArena::reserve(device_, kStepBytes).value();
    EXPECT_TRUE(arena.grow(kStepBytes));
    StepSm90 step(stream_, arena, test, tables);
    Elements qkv;
    for (std::size_t row = 0; row < test.rows.size(); ++row) {
      const RowShape& shape = test.rows[row];
      const Elements all = sequence(ids[row], shape.context_len, step.qkv_stride());
      qkv.insert(qkv.end(), all.end() - shape.num_new * step.qkv_stride(), all.end());
    }
    stream_.copy(step.qkv, qkv.data(), qkv.size() * 2);
    const std::int64_t num_outputs = (step.num_tokens() + StepSm90::kSpareTokens) * step.out_stride();
    stream_.fill(step.out, 0xff, num_outputs * 2);
    step.plan();
    step.prepare(stream_, step.prepare_params(memory_.data()));
    if (attends) {
      step.attend(stream_, memory_.data(), scale_of(test));
      step.attend(stream_, memory_.data(), scale_of(test));  // layer after layer with one plan
    }
    Elements out(num_outputs);
    stream_.copy(out.data(), step.out, out.size() * 2);
    EXPECT_TRUE(stream_.synchronize());
    for (auto i = step.num_tokens() * step.out_stride(); i < num_outputs; ++i) EXPECT_EQ(out[i], kPoison);
    std::vector<Elements> rows;
    for (std::size_t row = 0; row < test.rows.size(); ++row) {
      rows.emplace_back(out.begin() + step.first_token(row) * step.out_stride(),
                        out.begin() + (step.first_token(row) + test.rows[row].num_new) * step.out_stride());
    }
    return rows;
  }

  void expect_close(const Case& test);

  static constexpr std::size_t kMemoryBytes = std::size_t{1} << 30;
  static constexpr std::size_t kStepBytes = std::size_t{512} << 20;
  device::CudaDevice device_ = device::test_device();
  device::CudaStream stream_ = device::CudaStream::create(device_).value();
  device::CudaArena memory_ = device::CudaArena::reserve(device_, kMemoryBytes).value();  // the cache
};

/// Softmax over all keys that the query at `position` sees, in double.
std::vector<double> expected_head(const Case& test, const Elements& all, std::int32_t position, std::int32_t head) {
  const std::int64_t stride = std::int64_t{test.num_heads + 2 * test.num_kv_heads} * test.head_dim;
  const std::int32_t kv_head = head / (test.num_heads / test.num_kv_heads);
  const auto at = [&](std::int32_t token, std::int32_t which, std::int32_t dim) {
    return device::float_from_bf16(all[token * stride + which * test.head_dim + dim]);
  };
  const std::int32_t begin = test.window > 0 ? std::max(position - test.window + 1, 0) : 0;
  std::vector<double> scores;
  for (std::int32_t key = begin; key <= position; ++key) {
    float score = 0.0F;
    for (std::int32_t dim = 0; dim < test.head_dim; ++dim) {
      score += at(position, head, dim) * at(key, test.num_heads + kv_head, dim);
    }
    scores.push_back(score * scale_of(test));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  std::vector<double> out(test.head_dim);
  for (std::int32_t key = begin; key <= position; ++key) {
    const double weight = std::exp(scores[key - begin] - largest);
    sum += weight;
    for (std::int32_t dim = 0; dim < test.head_dim; ++dim) {
      out[dim] += weight * at(key, test.num_heads + test.num_kv_heads + kv_head, dim);
    }
  }
  for (double& value : out) value /= sum;
  return out;
}

/// Of each row, its first and last new tokens and one between, all heads: the distance is a few bf16 roundings.
void PagedAttentionSm90Test::expect_close(const Case& test) {
  SCOPED_TRACE(testing::Message() << test.name << ": head_dim " << test.head_dim << ", window " << test.window);
  std::vector<std::uint32_t> ids(test.rows.size());
  std::iota(ids.begin(), ids.end(), 1);
  const std::vector<Elements> got = run(test, ids, 333);
  const std::int64_t stride = std::int64_t{test.num_heads + 2 * test.num_kv_heads} * test.head_dim;
  for (std::size_t row = 0; row < test.rows.size(); ++row) {
    const RowShape& shape = test.rows[row];
    if (shape.num_new == 0) continue;
    const Elements all = sequence(ids[row], shape.context_len, stride);
    for (const std::int32_t token : {0, shape.num_new / 2, shape.num_new - 1}) {
      double squared_error = 0.0;
      double squared = 0.0;
      for (std::int32_t head = 0; head < test.num_heads; ++head) {
        const std::vector<double> expected = expected_head(test, all, shape.context_len - shape.num_new + token, head);
        for (std::int32_t dim = 0; dim < test.head_dim; ++dim) {
          const double value = device::float_from_bf16(got[row][(token * test.num_heads + head) * test.head_dim + dim]);
          squared_error += (value - expected[dim]) * (value - expected[dim]);
          squared += expected[dim] * expected[dim];
        }
      }
      EXPECT_LT(std::sqrt(squared_error / squared), 5e-3) << "row " << row << ", token " << token;
    }
  }
}

Case make_case(std::string name, std::int32_t num_heads, std::int32_t num_kv_heads, std::int32_t head_dim,
               std::int32_t block_size, std::int32_t window, std::vector<RowShape> rows) {
  return {std::move(name),      num_heads, num_kv_heads,   head_dim, block_size,
          device::DType::kBF16, window,    std::move(rows)};
}

TEST_F(PagedAttentionSm90Test, FollowsTheFormulaAtTheEdgesOfGroupsTilesAndPartitions) {
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t context : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257, 1023, 1024, 1025, 2049}) {
      expect_close(make_case("context " + std::to_string(context), 4, 1, head_dim, 16, 0,
                             {{context, 1}, {context, std::min(context, 130)}, {context, std::min(context, 9)}}));
    }
  }
}

TEST_F(PagedAttentionSm90Test, SeesNothingBeforeTheWindow) {
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t window : {1, 2, 17, 64, 128, 200, 1000, 1500}) {
      expect_close(
          make_case("window", 4, 2, head_dim, 32, window, {{1300, 150}, {530, 2}, {1, 1}, {2601, 40}, {3001, 7}}));
    }
  }
}

TEST_F(PagedAttentionSm90Test, TakesEveryBlockSizeAndNumberOfHeads) {
  for (const std::int32_t block_size : {16, 32, 48, 64}) {
    expect_close(make_case("block " + std::to_string(block_size), 8, 2, 128, block_size, 0, {{1150, 150}, {77, 1}}));
  }
  for (const std::int32_t group : {1, 2, 3, 5, 6, 7, 8, 12, 16, 64}) {
    expect_close(make_case("group " + std::to_string(group), 2 * group, 2, 128, 16, 0,
                           {{100, 100}, {77, 3}, {80, 1}, {1500, 5}}));
  }
  expect_close(make_case("rows without tokens", 4, 2, 128, 16, 0, {{40, 0}, {33, 33}, {9, 0}, {9, 1}, {64, 0}}));
}

TEST_F(PagedAttentionSm90Test, ASequenceHasTheSameBitsAloneInABatchInChunksAndByEitherKernel) {
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t window : {0, 700}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << ", window " << window);
      const auto alone = [&](std::uint32_t id, std::int32_t context, std::int32_t num_new) {
        return run(make_case("alone", 4, 1, head_dim, 16, window, {{context, num_new}}), {id}).front();
      };
      const Case batch = make_case("batch", 4, 1, head_dim, 16, window,
                                   {{2500, 1}, {1800, 4}, {2900, 2000}, {17, 1}, {1024, 16}, {3000, 1}});
      const std::vector<std::uint32_t> ids = {1, 2, 3, 4, 5, 6};
      const std::vector<Elements> together = run(batch, ids);
      for (std::size_t row = 0; row < ids.size(); ++row) {
        EXPECT_EQ(together[row], alone(ids[row], batch.rows[row].context_len, batch.rows[row].num_new))
            << "row " << row;
      }
      const std::int64_t stride = 4 * head_dim;
      const Elements whole = alone(3, 2900, 2900);
      const auto part_of_whole = [&](std::int32_t context, std::int32_t num_new) {
        return Elements(whole.begin() + (context - num_new) * stride, whole.begin() + context * stride);
      };
      EXPECT_EQ(together[2], part_of_whole(2900, 2000));
      for (const std::int32_t num_new : {1, 4, 7, 16}) {
        for (const std::int32_t context : {100, 1024, 1100, 2055}) {
          EXPECT_EQ(alone(3, context, num_new), part_of_whole(context, num_new)) << num_new << " at " << context;
        }
      }
    }
  }
}

/// Head `head` of a token's queries, keys and values as it ought to leave prepare_qkv.
struct Preparation {
  const Case& test;
  std::int32_t rope_dim;
  bool is_interleaved;
  const std::vector<float>& inverse_frequencies;
  const std::vector<float>& q_norm;

  std::vector<double> expected(const std::uint16_t* x, std::int32_t head, std::int32_t position) const {
    std::vector<double> values(test.head_dim);
    double squares = 0.0;
    for (std::int32_t dim = 0; dim < test.head_dim; ++dim) {
      values[dim] = device::float_from_bf16(x[dim]);
      squares += values[dim] * values[dim];
    }
    if (head < test.num_heads) {
      for (std::int32_t dim = 0; dim < test.head_dim; ++dim) {
        values[dim] *= q_norm[dim] / std::sqrt(squares / test.head_dim + 1e-6);
      }
    }
    if (head >= test.num_heads + test.num_kv_heads) return values;
    for (std::int32_t pair = 0; pair < rope_dim / 2; ++pair) {
      double& x0 = values[is_interleaved ? 2 * pair : pair];
      double& x1 = values[is_interleaved ? 2 * pair + 1 : pair + rope_dim / 2];
      const double angle = position * double{inverse_frequencies[pair]};
      const double rotated = x0 * std::cos(angle) - x1 * std::sin(angle);
      x1 = x0 * std::sin(angle) + x1 * std::cos(angle);
      x0 = rotated;
    }
    return values;
  }
};

TEST_F(PagedAttentionSm90Test, QueriesAndKeysAreNormalisedRotatedAndWrittenWhereTheyBelong) {
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t rope_dim : {head_dim, head_dim / 2, 0}) {
      for (const bool is_interleaved : {false, true}) {
        SCOPED_TRACE(testing::Message() << head_dim << ", " << rope_dim << ", " << is_interleaved);
        const Case test = make_case("prepare", 6, 2, head_dim, 16, 0, {{30, 3}, {18, 18}, {5, 1}});
        const BlockTables tables(test, 1);
        device::CudaArena arena = device::CudaArena::reserve(device_, kStepBytes).value();
        ASSERT_TRUE(arena.grow(kStepBytes));
        StepSm90 step(stream_, arena, test, tables);
        const auto put = [&](const auto& values) {
          auto* there = arena.take(values.size() * sizeof(values[0]) + 16);
          stream_.copy(there, values.data(), values.size() * sizeof(values[0]));
          return there;
        };

        const Elements qkv = sequence(1, step.num_tokens(), step.qkv_stride());
        std::vector<float> inverse_frequencies(rope_dim / 2);
        for (std::int32_t i = 0; i < rope_dim / 2; ++i)
          inverse_frequencies[i] = std::pow(10000.0F, -2.0F * i / rope_dim);
        std::vector<float> q_norm(head_dim);
        for (std::int32_t i = 0; i < head_dim; ++i) q_norm[i] = 0.5F + 0.01F * static_cast<float>(i);
        std::vector<std::int32_t> positions;
        for (const RowShape& row : test.rows) {
          for (std::int32_t i = row.context_len - row.num_new; i < row.context_len; ++i) positions.push_back(i);
        }
        auto* cos_sin = reinterpret_cast<float*>(arena.take(positions.size() * head_dim * sizeof(float)));
        const rotation::RopeTableSm90Params table{
            .inverse_frequencies = reinterpret_cast<const float*>(put(inverse_frequencies)),
            .magnitude = 1.0F,
            .rope_dim = rope_dim,
            .positions = reinterpret_cast<const std::int32_t*>(put(positions)),
            .num_tokens = step.num_tokens(),
            .cos_sin = cos_sin};
        stream_.note("rope_table", stream_.table().kernels->rope_table(stream_.handle(), table));
        stream_.copy(step.qkv, qkv.data(), qkv.size() * 2);
        stream_.fill(memory_.data(), 0xff, cache_bytes(test, tables.num_blocks));
        PrepareQkvSm90Params params = step.prepare_params(memory_.data());
        params.q_norm = reinterpret_cast<const float*>(put(q_norm));
        params.cos_sin = cos_sin;
        params.rope_dim = rope_dim;
        params.is_interleaved = is_interleaved;
        step.plan();
        step.prepare(stream_, params);
        Elements queries(qkv.size());
        Elements cache(cache_bytes(test, tables.num_blocks) / 2);
        stream_.copy(queries.data(), step.qkv, queries.size() * 2);
        stream_.copy(cache.data(), memory_.data(), cache.size() * 2);
        ASSERT_TRUE(stream_.synchronize());

        const Preparation preparation{test, rope_dim, is_interleaved, inverse_frequencies, q_norm};
        for (std::size_t row = 0, token = 0; row < test.rows.size(); ++row) {
          for (std::int32_t i = 0; i < test.rows[row].num_new; ++i, ++token) {
            const std::int32_t position = positions[token];
            for (std::int32_t head = 0; head < test.num_heads + 2 * test.num_kv_heads; ++head) {
              const std::int64_t offset = token * step.qkv_stride() + head * head_dim;
              const std::vector<double> expected = preparation.expected(qkv.data() + offset, head, position);
              const bool is_value = head >= test.num_heads + test.num_kv_heads;
              const std::int64_t in_cache =
                  tables.rows[row][position / 16] * kv_block_elements(test.num_kv_heads, head_dim, 16) +
                  kv_head_offset(head_dim, 16, (head - test.num_heads) % test.num_kv_heads) +
                  (is_value ? 16 * head_dim : 0);
              for (std::int32_t dim = 0; dim < head_dim; ++dim) {
                const std::uint16_t got = head < test.num_heads
                                              ? queries[offset + dim]
                                              : cache[in_cache + kv_element(head_dim, position % 16, dim)];
                ASSERT_NEAR(device::float_from_bf16(got), expected[dim], 5e-3 * (0.1 + std::abs(expected[dim])));
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::kernels::attention
