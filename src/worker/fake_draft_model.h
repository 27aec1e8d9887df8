// For tests: a fake model with a draft model of chosen quality beside it.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "worker/fake_model.h"

namespace thalweg::worker {

struct FakeDraftOptions {
  std::int32_t block_size = 5;
  float error = 0.0F;                  // of its logits: they lie within [-error, error] of the model's
  std::vector<float> confidences;      // of each draft; empty: certain
  std::int32_t nan_after = -1;         // logits and confidence of the draft that follows this token are NaN
  std::int32_t* num_passes = nullptr;  // counted
};

/// Drafts from the logits of a model of its own, which is asked about the whole text.
class FakeDraftModel final : public models::DraftModel {
 public:
  FakeDraftModel(const FakeModelOptions& model, const FakeDraftOptions& options) : oracle_(model), options_(options) {
    oracle_.reserve(model.max_position);
    blocks_.resize(static_cast<std::size_t>(model.max_position));
    block_table_.resize(blocks_.size() / FakeModel::kBlockSize);
    std::iota(block_table_.begin(), block_table_.end(), 0);
    positions_.resize(blocks_.size());
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  std::int32_t block_size() const override { return options_.block_size; }
  void reserve(std::int32_t max_queries) override { max_queries_ = max_queries; }

  /// What forward has computed; a slot's later tokens are not committed.
  void see(const step::BatchView& batch) {
    for (std::size_t row = 0; row < batch.slots.size(); ++row) {
      const auto slot = static_cast<std::size_t>(batch.slots[row]);
      if (slot >= texts_.size()) texts_.resize(slot + 1);
      texts_[slot].assign(batch.histories[row].begin(), batch.histories[row].end());
      const auto first = static_cast<std::size_t>(batch.cu_seqlens[row]);
      const auto end = static_cast<std::size_t>(batch.cu_seqlens[row + 1]);
      texts_[slot].insert(texts_[slot].end(), batch.token_ids.begin() + static_cast<std::ptrdiff_t>(first),
                          batch.token_ids.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }

  void begin(device::Stream&, std::span<const models::DraftQuery> queries, const models::CacheMemory& cache) override {
    ASSERT_LE(static_cast<std::int32_t>(queries.size()), max_queries_);
    ASSERT_NE(cache.blocks, nullptr);
    if (options_.num_passes != nullptr) ++*options_.num_passes;
    drafted_.clear();
    for (const models::DraftQuery& query : queries) {
      const std::vector<std::int32_t>& text = texts_[static_cast<std::size_t>(query.slot)];
      ASSERT_GE(text.size(), static_cast<std::size_t>(query.position))
          << "the model has not computed what it drafts on";
      drafted_.emplace_back(text.begin(), text.begin() + query.position);
    }
    next_ = 0;
  }

  void next(device::Stream& stream, std::int32_t i, std::span<const std::int32_t> previous, float* logits,
            float* confidences) override {
    ASSERT_EQ(i, next_++);
    ASSERT_LT(i, options_.block_size);
    ASSERT_EQ(previous.size(), drafted_.size());
    for (std::size_t q = 0; q < drafted_.size(); ++q) {
      drafted_[q].push_back(previous[q]);
      const bool broken = previous[q] == options_.nan_after;
      const auto draft = static_cast<std::size_t>(i);
      confidences[q] = broken                         ? std::numeric_limits<float>::quiet_NaN()
                       : options_.confidences.empty() ? 1.0F
                                                      : options_.confidences[draft];
      const auto vocab_size = static_cast<std::size_t>(oracle_.info().vocab_size);
      guess(stream, drafted_[q], logits + q * vocab_size);
      if (broken) logits[q * vocab_size] = std::numeric_limits<float>::quiet_NaN();
    }
  }

 private:
  void guess(device::Stream& stream, const std::vector<std::int32_t>& text, float* logits) {
    const auto length = static_cast<std::int32_t>(text.size());
    const std::vector<std::int32_t> cu_seqlens{0, length};
    const std::vector<std::int32_t> zero{0};
    const std::vector<std::int32_t> last{length - 1};
    const std::span<const std::int32_t> no_history;
    const step::BatchView batch{.token_ids = text,
                                .positions = std::span(positions_).first(text.size()),
                                .cu_seqlens = cu_seqlens,
                                .context_lens = std::span(cu_seqlens).last(1),
                                .block_tables = block_table_,
                                .max_blocks_per_row = static_cast<std::int32_t>(block_table_.size()),
                                .slots = zero,
                                .logit_tokens = last,
                                .histories = {&no_history, 1},
                                .cached_lens = zero,
                                .full_from = zero};
    const models::CacheMemory cache{.blocks = reinterpret_cast<std::byte*>(blocks_.data()),
                                    .num_blocks = static_cast<std::int64_t>(block_table_.size()),
                                    .max_slots = 1};
    oracle_.forward(stream, batch, cache, logits);
    auto bits = static_cast<std::uint32_t>(text.back() * 977 + length);
    for (std::int32_t v = 0; v < oracle_.info().vocab_size; ++v) {
      bits = bits * 1664525 + 1013904223;
      logits[v] += options_.error * (static_cast<float>(bits >> 8) * 0x1.0p-23F - 1.0F);
    }
  }

  FakeModel oracle_;
  const FakeDraftOptions options_;
  std::int32_t max_queries_ = 0;
  std::int32_t next_ = 0;
  std::vector<std::vector<std::int32_t>> texts_;    // per slot
  std::vector<std::vector<std::int32_t>> drafted_;  // per query, its text and drafts
  std::vector<std::int32_t> blocks_;
  std::vector<std::int32_t> block_table_;
  std::vector<std::int32_t> positions_;
};

class FakeModelWithDrafts final : public models::Model {
 public:
  FakeModelWithDrafts(const FakeModelOptions& model, const FakeDraftOptions& draft)
      : model_(model),
        draft_(
            FakeModelOptions{.vocab_size = model.vocab_size, .max_position = model.max_position, .order = model.order},
            draft) {}

  const models::ModelInfo& info() const override { return model_.info(); }
  void reserve(std::int32_t max_num_batched_tokens) override { model_.reserve(max_num_batched_tokens); }
  void forward(device::Stream& stream, const step::BatchView& batch, const models::CacheMemory& cache,
               float* logits) override {
    model_.forward(stream, batch, cache, logits);
    draft_.see(batch);
  }
  models::DraftModel* draft_model() override { return &draft_; }

 private:
  FakeModel model_;
  FakeDraftModel draft_;
};

}  // namespace thalweg::worker
