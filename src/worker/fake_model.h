// For tests: a model that reads its whole context back from the cache, so a wrong position, block or row changes its
// logits. With a window the last tokens come from the slot's state instead, which fails the test where it has a gap.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <new>

#include "models/model.h"

namespace thalweg::worker {

struct FakeModelOptions {
  std::int32_t vocab_size = 101;
  std::int32_t max_position = 512;
  std::int32_t order = 0;                               // logits depend on that many last tokens; 0: on all
  std::int32_t nan_after = -1;                          // logits that follow this token are NaN
  std::int32_t bad_alloc_at = -1;                       // a forward that sees this token runs out of memory
  std::atomic<std::int32_t>* largest_logits = nullptr;  // most logit rows of any forward
  std::int32_t window = 0;                              // last tokens that live in the slot's state; 0: no state
  std::int32_t max_draft_tokens = 0;                    // rows that the state can be rolled back
  std::int32_t hit_granularity = 1;
  std::int32_t replay_tokens = 0;  // at least window - 1
  std::int32_t prefill_tail_tokens = 0;
  std::function<void(const step::BatchView&)> on_forward;  // on the thread that calls forward
};

class FakeModel final : public models::Model {
 public:
  static constexpr std::int32_t kBlockSize = 4;

  explicit FakeModel(const FakeModelOptions& options) : options_(options) {
    info_.architecture = "fake";
    info_.vocab_size = options.vocab_size;
    info_.max_position = options.max_position;
    info_.cache.block_size = kBlockSize;
    info_.cache.bytes_per_block = kBlockSize * static_cast<std::int64_t>(sizeof(std::int32_t));
    info_.cache.hit_granularity = options.hit_granularity;
    info_.cache.replay_tokens = options.replay_tokens;
    info_.prefill_tail_tokens = options.prefill_tail_tokens;
    if (options.window > 0) info_.cache.state_bytes_per_slot = (1 + num_places()) * sizeof(std::int64_t);
  }

  const models::ModelInfo& info() const override { return info_; }
  void reserve(std::int32_t max_num_batched_tokens) override { max_tokens_ = max_num_batched_tokens; }

  void forward(device::Stream&, const step::BatchView& batch, const models::CacheMemory& cache,
               float* logits) override {
    ASSERT_LE(batch.num_tokens(), max_tokens_);
    if (options_.on_forward) options_.on_forward(batch);
    if (options_.largest_logits != nullptr && *options_.largest_logits < batch.num_logits()) {
      *options_.largest_logits = batch.num_logits();
    }
    auto* places = reinterpret_cast<std::int32_t*>(cache.blocks);
    const auto place_of = [&](std::int32_t row, std::int32_t position) -> std::int32_t& {
      const auto at = static_cast<std::size_t>(row * batch.max_blocks_per_row + position / kBlockSize);
      return places[batch.block_tables[at] * kBlockSize + position % kBlockSize];
    };
    std::size_t next_logit = 0;
    for (std::int32_t row = 0; row < batch.num_rows(); ++row) {
      const auto r = static_cast<std::size_t>(row);
      const std::int32_t end = batch.cu_seqlens[r + 1];
      std::int64_t* state = begin_row(batch, cache, r);
      for (std::int32_t p = 0; p < static_cast<std::int32_t>(batch.histories[r].size()); ++p) {
        ASSERT_EQ(batch.histories[r][static_cast<std::size_t>(p)], place_of(row, p));
      }
      for (std::int32_t t = batch.cu_seqlens[r]; t < end; ++t) {
        const std::int32_t token = batch.token_ids[static_cast<std::size_t>(t)];
        if (token == options_.bad_alloc_at) throw std::bad_alloc();
        const std::int32_t position = batch.positions[static_cast<std::size_t>(t)];
        ASSERT_EQ(position, batch.context_lens[r] - (end - t));
        if (position < batch.cached_lens[r]) {
          ASSERT_EQ(place_of(row, position), token);
        } else {
          place_of(row, position) = token;
        }
        if (state != nullptr) keep(state, position, token);
        if (next_logit == batch.logit_tokens.size() || batch.logit_tokens[next_logit] != t) continue;
        ASSERT_GE(position, batch.full_from[r]);
        std::uint64_t hash = 1;
        for (std::int32_t p = options_.order > 0 ? std::max(0, position + 1 - options_.order) : 0; p <= position; ++p) {
          const bool in_window = p > position - options_.window;
          hash = mix(hash, static_cast<std::uint64_t>(in_window ? kept(state, p) : place_of(row, p)) + 1);
        }
        write_logits(hash, token == options_.nan_after,
                     logits + next_logit * static_cast<std::size_t>(options_.vocab_size));
        ++next_logit;
      }
    }
    ASSERT_EQ(next_logit, batch.logit_tokens.size());
  }

 private:
  static std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15;
    return hash ^ (hash >> 29);
  }

  // A slot's state: how many tokens it has seen, then the last of them, each beside its position.

  std::int32_t num_places() const { return options_.window + options_.max_draft_tokens; }

  /// The row's state, null without a window, after checks that the row continues it, or begins it where the model's
  /// hits want it.
  std::int64_t* begin_row(const step::BatchView& batch, const models::CacheMemory& cache, std::size_t row) const {
    const std::int32_t first = batch.positions[static_cast<std::size_t>(batch.cu_seqlens[row])];
    EXPECT_EQ(batch.histories[row].size(), static_cast<std::size_t>(first));
    if (options_.window == 0) return nullptr;
    EXPECT_LT(batch.slots[row], cache.max_slots);
    auto* state = reinterpret_cast<std::int64_t*>(cache.states + batch.slots[row] * info_.cache.state_bytes_per_slot);
    const auto num_seen = static_cast<std::int32_t>(state[0]);
    if (num_seen == 0) {
      EXPECT_EQ(first, std::max(batch.cached_lens[row] - options_.replay_tokens, 0));
    } else {
      EXPECT_LE(first, num_seen);
      EXPECT_GE(first, num_seen - options_.max_draft_tokens);
    }
    return state;
  }

  void keep(std::int64_t* state, std::int32_t position, std::int32_t token) const {
    state[0] = position + 1;
    state[1 + position % num_places()] = std::int64_t{position} << 32 | token;
  }

  std::int32_t kept(const std::int64_t* state, std::int32_t position) const {
    const std::int64_t entry = state[1 + position % num_places()];
    EXPECT_EQ(entry >> 32, position) << "the state has a gap";
    return static_cast<std::int32_t>(entry);
  }

  void write_logits(std::uint64_t hash, bool broken, float* out) const {
    for (std::int32_t v = 0; v < options_.vocab_size; ++v) {
      const std::uint64_t bits = mix(mix(hash, static_cast<std::uint64_t>(v)), 77);
      out[v] = static_cast<float>(bits >> 40) * 0x1.0p-24F * 10.0F - 5.0F;
    }
    if (broken) out[options_.vocab_size / 2] = std::numeric_limits<float>::quiet_NaN();
  }

  FakeModelOptions options_;
  models::ModelInfo info_;
  std::int32_t max_tokens_ = 0;
};

}  // namespace thalweg::worker
