// What a sequence owns beside its blocks: steps that are taken back, and sequences that begin with a prefix hit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "device/thread_pool.h"
#include "models/registry.h"
#include "step/batch_view.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v4 {
namespace {

constexpr std::int32_t kNumTokens = 270;  // two groups of 128 and the beginning of a third
constexpr std::int32_t kMaxDrafts = 3;
constexpr std::int32_t kWindow = 12;  // of the checkpoint

class State : public testing::Test {
 protected:
  State() {
    auto opened = weights::Checkpoint::open("tests/golden/models/deepseek_v4");
    CHECK(opened.has_value());
    auto loaded = load_model(**opened, stream_, {.kv_dtype = device::DType::kF32, .max_draft_tokens = kMaxDrafts});
    CHECK(loaded.has_value());
    model_ = std::move(*loaded);
    model_->reserve(kNumTokens);
    const kv_cache::CacheSpec& cache = model_->info().cache;
    blocks_ = device::Buffer(static_cast<std::size_t>(kNumBlocks * cache.bytes_per_block));
    states_ = device::Buffer(static_cast<std::size_t>(cache.state_bytes_per_slot));
    ids_.resize(kNumTokens);
    for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<std::int32_t>(i * i * 7 % 64);
  }

  /// Logits of the tokens `ids` from position `first` on, [ids.size(), vocab_size].
  std::vector<float> step(std::span<const std::int32_t> ids, std::int32_t first, std::int32_t cached_len = 0) {
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), first);
    std::vector<std::int32_t> logit_tokens(ids.size());
    std::iota(logit_tokens.begin(), logit_tokens.end(), 0);
    const std::int32_t cu_seqlens[] = {0, static_cast<std::int32_t>(ids.size())};
    const std::int32_t context_lens[] = {first + static_cast<std::int32_t>(ids.size())};
    const std::int32_t slots[] = {0};
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(model_->info().vocab_size));
    model_->forward(stream_,
                    {.token_ids = ids,
                     .positions = positions,
                     .cu_seqlens = cu_seqlens,
                     .context_lens = context_lens,
                     .block_tables = kTable,
                     .max_blocks_per_row = kNumBlocks,
                     .slots = slots,
                     .logit_tokens = logit_tokens,
                     .cached_lens = std::span(&cached_len, 1)},
                    {blocks_.data(), kNumBlocks, states_.data(), 1}, logits.data());
    return logits;
  }

  std::span<const float> rows(const std::vector<float>& logits, std::int32_t first, std::int32_t count) const {
    const auto vocab = static_cast<std::size_t>(model_->info().vocab_size);
    return std::span(logits).subspan(static_cast<std::size_t>(first) * vocab, static_cast<std::size_t>(count) * vocab);
  }

  static constexpr std::int32_t kNumBlocks = 3;
  static constexpr std::int32_t kTable[kNumBlocks] = {2, 0, 1};

  device::ThreadPool threads_{2, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  std::unique_ptr<Model> model_;
  device::Buffer blocks_, states_;
  std::vector<std::int32_t> ids_;
};

TEST_F(State, HoldsWhatBlocksDoNot) {
  const kv_cache::CacheSpec& cache = model_->info().cache;
  EXPECT_EQ(cache.block_size, 128);  // whole groups of every layer
  EXPECT_EQ(cache.hit_granularity, 128);
  EXPECT_EQ(cache.replay_tokens, 4 * kWindow);
  // Entries of 32 channels: 32 in each of two sparse layers, whose index keys have 16, and one in the heavy layer.
  EXPECT_EQ(cache.bytes_per_block, 2 * (32 * 32 + 32 * 16) * 4 + 32 * 4);
  EXPECT_GT(cache.state_bytes_per_slot, 0);
}

TEST_F(State, ForgetsRejectedDrafts) {
  const std::vector<float> expected = step(ids_, 0);
  constexpr std::int32_t kPrompt = 117;
  step(std::span(ids_).first(kPrompt), 0);
  // Each step computes a token and three drafts, of which the last 3, 2, 1 or 0 are wrong; then goes on behind those
  // that were right. So groups of 4 and of 128 are completed by wrong tokens, too.
  std::int32_t position = kPrompt;
  for (std::int32_t turn = 0; position + kMaxDrafts < kNumTokens; ++turn) {
    const std::int32_t num_right = 1 + turn % (kMaxDrafts + 1);
    std::vector<std::int32_t> ids(ids_.begin() + position, ids_.begin() + position + 1 + kMaxDrafts);
    for (std::int32_t i = num_right; i <= kMaxDrafts; ++i) ids[static_cast<std::size_t>(i)] ^= 1;
    const std::vector<float> logits = step(ids, position);
    ASSERT_TRUE(std::ranges::equal(rows(logits, 0, num_right), rows(expected, position, num_right))) << position;
    position += num_right;
  }
}

TEST_F(State, IsRebuiltExactlyAfterAPrefixHit) {
  constexpr std::int32_t kHit = 256;
  const std::vector<float> expected = step(ids_, 0);
  const std::vector<std::byte> blocks(blocks_.data(), blocks_.data() + blocks_.size());
  for (const std::int32_t replayed : {model_->info().cache.replay_tokens, 128}) {
    std::memset(states_.data(), 0x3f, states_.size());  // another sequence's, as finite numbers
    const std::int32_t first = kHit - replayed;
    const std::vector<float> logits = step(std::span(ids_).subspan(static_cast<std::size_t>(first)), first, kHit);
    EXPECT_TRUE(std::ranges::equal(rows(logits, replayed, kNumTokens - kHit), rows(expected, kHit, kNumTokens - kHit)))
        << replayed;
    EXPECT_EQ(std::memcmp(blocks.data(), blocks_.data(), blocks.size()), 0) << "shared entries were overwritten";
  }
}

TEST_F(State, NeedsTheWholeReplay) {
  constexpr std::int32_t kHit = 256;
  const std::vector<float> expected = step(ids_, 0);
  std::memset(states_.data(), 0x3f, states_.size());
  constexpr std::int32_t kFirst = kHit - kWindow;
  const std::vector<float> logits = step(std::span(ids_).subspan(kFirst), kFirst, kHit);
  EXPECT_FALSE(std::ranges::equal(rows(logits, kWindow, 1), rows(expected, kHit, 1)));
}

}  // namespace
}  // namespace thalweg::models::deepseek_v4
