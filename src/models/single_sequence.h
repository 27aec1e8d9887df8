// For tests and benches: one sequence through a model, without scheduler or worker.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/stream.h"
#include "models/model.h"

namespace thalweg::models {

/// Owns a cache for `max_tokens` tokens whose blocks lie in falling order, so that nothing works by being contiguous.
class SingleSequence {
 public:
  SingleSequence(Model& model, device::Stream& stream, std::int32_t max_tokens)
      : model_(model),
        stream_(stream),
        num_blocks_((max_tokens + model.info().cache.block_size - 1) / model.info().cache.block_size),
        blocks_(static_cast<std::size_t>(num_blocks_ * model.info().cache.bytes_per_block)),
        block_table_(static_cast<std::size_t>(num_blocks_)) {
    for (std::int32_t i = 0; i < num_blocks_; ++i) block_table_[static_cast<std::size_t>(i)] = num_blocks_ - 1 - i;
  }

  /// Continues the sequence with `ids` in one step. Logits of all of them, or of the last one, [num_logits,
  /// vocab_size].
  std::vector<float> step(std::span<const std::int32_t> ids, bool all_logits) {
    const auto count = static_cast<std::int32_t>(ids.size());
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), num_tokens_);
    num_tokens_ += count;
    const std::vector<std::int32_t> cu_seqlens{0, count};
    const std::vector<std::int32_t> context_lens{num_tokens_};
    const std::vector<std::int32_t> slots{0};
    std::vector<std::int32_t> logit_tokens(all_logits ? ids.size() : 1);
    std::iota(logit_tokens.begin(), logit_tokens.end(), all_logits ? 0 : count - 1);
    std::vector<float> logits(logit_tokens.size() * static_cast<std::size_t>(model_.info().vocab_size));
    const CacheMemory cache{.blocks = blocks_.data(), .num_blocks = num_blocks_};
    model_.forward(stream_,
                   {.token_ids = ids,
                    .positions = positions,
                    .cu_seqlens = cu_seqlens,
                    .context_lens = context_lens,
                    .block_tables = block_table_,
                    .max_blocks_per_row = num_blocks_,
                    .slots = slots,
                    .logit_tokens = logit_tokens},
                   cache, logits.data());
    return logits;
  }

  /// All of `ids` in steps of at most `chunk` tokens, logits of all.
  std::vector<float> run(std::span<const std::int32_t> ids, std::size_t chunk) {
    std::vector<float> logits;
    for (std::size_t first = 0; first < ids.size(); first += chunk) {
      const std::vector<float> part = step(ids.subspan(first, std::min(chunk, ids.size() - first)), true);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    return logits;
  }

 private:
  Model& model_;
  device::Stream& stream_;
  std::int32_t num_blocks_;
  device::Buffer blocks_;
  std::vector<std::int32_t> block_table_;
  std::int32_t num_tokens_ = 0;
};

}  // namespace thalweg::models
