// Bounded replay, of a prompt's tail and after a prefix hit: exact where the specification says so, close elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "device/thread_pool.h"
#include "models/deepseek_v41/golden_files.h"
#include "models/registry.h"
#include "step/batch_view.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v41 {
namespace {

constexpr std::int32_t kWindow = 16;  // of the checkpoint
constexpr std::int32_t kMaxTokens = 320;

class Replay : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_golden_files()) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
    open("micro-calm", "len300.ids");
    EXPECT_EQ(model_->info().prefill_tail_tokens, kWindow);
    EXPECT_EQ(model_->info().cache.replay_tokens, kWindow);
  }

  void open(const std::string& folder, const std::string& ids) {
    Result<std::unique_ptr<weights::Checkpoint>> opened = weights::Checkpoint::open(golden_folder(folder));
    CHECK(opened.has_value());
    Result<std::unique_ptr<Model>> loaded = load_model(**opened, stream_, {.numerics = Numerics::kFp32});
    CHECK(loaded.has_value());
    model_ = std::move(*loaded);
    model_->reserve(kMaxTokens);
    const kv_cache::CacheSpec& cache = model_->info().cache;
    num_blocks_ = kMaxTokens / cache.block_size;
    blocks_ = device::Buffer(static_cast<std::size_t>(num_blocks_ * cache.bytes_per_block));
    states_ = device::Buffer(static_cast<std::size_t>(cache.state_bytes_per_slot));
    table_.resize(static_cast<std::size_t>(num_blocks_));
    std::iota(table_.rbegin(), table_.rend(), 0);
    ids_ = GoldenFile(golden_folder(folder) + "/golden_fp32.safetensors").ints(ids);
  }

  void forget_state() { std::memset(states_.data(), 0, states_.size()); }

  struct Row {
    std::int32_t first = 0;
    std::int32_t end = 0;
    std::int32_t cached_len = 0;
    std::int32_t full_from = 0;
  };

  /// Logits of the row's last token.
  std::vector<float> step(const Row& row) {
    const auto count = static_cast<std::size_t>(row.end - row.first);
    std::vector<std::int32_t> positions(count);
    std::iota(positions.begin(), positions.end(), row.first);
    const std::span<const std::int32_t> ids = std::span(ids_).subspan(static_cast<std::size_t>(row.first), count);
    const std::span<const std::int32_t> history = std::span(ids_).first(static_cast<std::size_t>(row.first));
    const std::int32_t cu_seqlens[] = {0, static_cast<std::int32_t>(count)};
    const std::int32_t context_lens[] = {row.end};
    const std::int32_t slots[] = {0};
    const std::int32_t logit_tokens[] = {static_cast<std::int32_t>(count) - 1};
    std::vector<float> logits(static_cast<std::size_t>(model_->info().vocab_size));
    const bool has_logits = row.end > row.full_from;
    model_->forward(stream_,
                    {.token_ids = ids,
                     .positions = positions,
                     .cu_seqlens = cu_seqlens,
                     .context_lens = context_lens,
                     .block_tables = table_,
                     .max_blocks_per_row = num_blocks_,
                     .slots = slots,
                     .logit_tokens = std::span(logit_tokens).first(has_logits ? 1 : 0),
                     .histories = std::span(&history, 1),
                     .cached_lens = std::span(&row.cached_len, 1),
                     .full_from = std::span(&row.full_from, 1)},
                    {blocks_.data(), num_blocks_, states_.data(), 1}, logits.data());
    return logits;
  }

  std::vector<float> cold(std::int32_t num_tokens) {
    forget_state();
    return step({.end = num_tokens});
  }

  static double kl_divergence(const std::vector<float>& exact, const std::vector<float>& other) {
    const auto log_sum = [](const std::vector<float>& logits) {
      const double most = *std::ranges::max_element(logits);
      double sum = 0.0;
      for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
      return most + std::log(sum);
    };
    const double exact_sum = log_sum(exact);
    const double other_sum = log_sum(other);
    double kl = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double log_p = static_cast<double>(exact[i]) - exact_sum;
      kl += std::exp(log_p) * (log_p - (static_cast<double>(other[i]) - other_sum));
    }
    return kl;
  }

  device::ThreadPool threads_{2};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  std::unique_ptr<Model> model_;  // outlives its checkpoint
  std::int32_t num_blocks_ = 0;
  device::Buffer blocks_, states_;
  std::vector<std::int32_t> table_, ids_;
};

TEST_F(Replay, OfATailThatHoldsThePromptChangesNothing) {
  for (const std::int32_t num_tokens : {1, 7, kWindow}) {
    const std::vector<float> exact = cold(num_tokens);
    forget_state();
    EXPECT_EQ(step({.end = num_tokens, .full_from = std::max(0, num_tokens - kWindow)}), exact) << num_tokens;
  }
}

TEST_F(Replay, OfALongPromptsTailIsClose) {
  for (const std::int32_t num_tokens : {kWindow + 1, 64, 131, 300}) {
    const std::vector<float> exact = cold(num_tokens);
    forget_state();
    std::int64_t rows_behind = 0;
    std::int64_t rows_before = 0;
    model_->set_tap([&](std::string_view name, std::int64_t rows, std::int64_t, const float*) {
      if (name == "layers.7.X") rows_behind = rows;
      if (name == "layers.3.X") rows_before = rows;
    });
    const std::vector<float> replayed = step({.end = num_tokens, .full_from = num_tokens - kWindow});
    model_->set_tap({});
    EXPECT_EQ(rows_before, num_tokens);
    EXPECT_EQ(rows_behind, kWindow);
    EXPECT_LE(kl_divergence(exact, replayed), 1e-3) << num_tokens;
  }
}

TEST_F(Replay, DoesNotDependOnHowThePromptIsDivided) {
  const std::int32_t num_tokens = 131;
  const std::int32_t full_from = num_tokens - kWindow;
  forget_state();
  const std::vector<float> whole = step({.end = num_tokens, .full_from = full_from});
  for (const std::int32_t cut : {1, 33, 64, full_from, full_from + 5, num_tokens - 1}) {
    forget_state();
    step({.end = cut, .full_from = full_from});
    EXPECT_EQ(step({.first = cut, .end = num_tokens, .full_from = full_from}), whole) << cut;
  }
}

/// A table of the decoder half adds rows to the tail alone: layer 5 of `odd`, whose last kv source is layer 4.
TEST_F(Replay, OfATailPicksItsOwnEngramRows) {
  open("odd", "len40.ids");
  const std::int32_t num_tokens = 40;
  const std::int32_t full_from = num_tokens - model_->info().prefill_tail_tokens;
  ASSERT_GT(full_from, 0);
  forget_state();
  const std::vector<float> whole = step({.end = num_tokens, .full_from = full_from});
  forget_state();
  step({.end = full_from, .full_from = full_from});
  EXPECT_EQ(step({.first = full_from, .end = num_tokens, .full_from = full_from}), whole);
}

/// Steps after a prompt whose tail was replayed, against those after one that was computed in full.
TEST_F(Replay, DecodingGoesOnFromATail) {
  constexpr std::int32_t kPromptTokens = 200;
  std::vector<std::vector<float>> exact;
  cold(kPromptTokens);
  for (std::int32_t t = kPromptTokens; t < 240; ++t) exact.push_back(step({.first = t, .end = t + 1}));
  forget_state();
  step({.end = kPromptTokens, .full_from = kPromptTokens - kWindow});
  double sum = 0.0;
  for (std::int32_t t = kPromptTokens; t < 240; ++t) {
    sum += kl_divergence(exact[static_cast<std::size_t>(t - kPromptTokens)], step({.first = t, .end = t + 1}));
  }
  EXPECT_LE(sum / static_cast<double>(exact.size()), 1e-3);
}

TEST_F(Replay, AfterAHitThatReachesBackToTheBeginChangesNothing) {
  const std::vector<float> exact = cold(90);
  forget_state();
  EXPECT_EQ(step({.first = 0, .end = 90, .cached_len = kWindow}), exact);
}

TEST_F(Replay, AfterAHitIsCloseAndLeavesTheBlocksAlone) {
  for (const std::int32_t hit : {32, 64, 256}) {
    const std::vector<float> exact = cold(300);
    const std::vector<std::byte> before(blocks_.data(), blocks_.data() + blocks_.size());
    forget_state();
    const std::vector<float> after = step({.first = hit - kWindow, .end = 300, .cached_len = hit});
    EXPECT_LE(kl_divergence(exact, after), 1e-3) << hit;

    // What was there is as it was: blocks before the hit's end, which stand last in the falling block table.
    const std::int64_t block_bytes = model_->info().cache.bytes_per_block;
    for (std::int32_t i = 0; i < hit / model_->info().cache.block_size; ++i) {
      const std::int64_t block = table_[static_cast<std::size_t>(i)];
      EXPECT_EQ(std::memcmp(before.data() + block * block_bytes, blocks_.data() + block * block_bytes,
                            static_cast<std::size_t>(block_bytes)),
                0)
          << "block " << i << " of a hit of " << hit;
    }
  }
}

/// Both at once, over prompts of many lengths: the tail's first rows are made of replayed ones.
TEST_F(Replay, OfTheTailAfterAHit) {
  double sum = 0.0;
  int count = 0;
  for (std::int32_t num_tokens = 289; num_tokens <= 300; ++num_tokens) {
    const std::vector<float> exact = cold(num_tokens);
    forget_state();
    sum += kl_divergence(
        exact, step({.first = 288 - kWindow, .end = num_tokens, .cached_len = 288, .full_from = num_tokens - kWindow}));
    ++count;
  }
  EXPECT_LE(sum / count, 1e-3);
}

/// What rejected drafts left behind is never seen.
TEST_F(Replay, RejectedDraftsLeaveNoTrace) {
  const std::vector<float> exact = cold(101);
  for (std::int32_t num_drafts = 1; num_drafts <= 5; ++num_drafts) {
    cold(100);
    const std::vector<std::int32_t> kept(ids_.begin() + 100, ids_.begin() + 106);
    for (std::int32_t i = 0; i < num_drafts; ++i) ids_[static_cast<std::size_t>(101 + i)] = 3 + i;
    step({.first = 100, .end = 101 + num_drafts});
    std::ranges::copy(kept, ids_.begin() + 100);
    // The token at 100 was accepted, nothing behind it: the next row begins at 101.
    const std::vector<float> next = step({.first = 101, .end = 102});
    cold(101);
    EXPECT_EQ(step({.first = 101, .end = 102}), next) << num_drafts << " drafts";
  }
  EXPECT_EQ(cold(101), exact);
}

/// Rings hold as many rows more than the window as a draft model's block has tokens.
TEST_F(Replay, GoesBackNoFurtherThanTheRingsRemember) {
  cold(100);
  step({.first = 95, .end = 101});
  EXPECT_DEATH(step({.first = 95, .end = 101}), "first >= header.end - layout_.max_draft_tokens");
}

}  // namespace
}  // namespace thalweg::models::deepseek_v41
