// For tests and benches: a few sequences through a model, without scheduler or worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "device/buffer.h"
#include "device/stream.h"
#include "models/model.h"

namespace thalweg::models {

/// Owns a cache for `max_tokens` tokens of each sequence. Blocks lie in falling order and the sequences' blocks
/// alternate, so that nothing works by being contiguous.
class SequenceBatch {
 public:
  using Ids = std::span<const std::int32_t>;

  SequenceBatch(Model& model, device::Stream& stream, std::int32_t num_sequences, std::int32_t max_tokens)
      : model_(model),
        stream_(stream),
        blocks_per_row_((max_tokens + model.info().cache.block_size - 1) / model.info().cache.block_size),
        num_blocks_(num_sequences * blocks_per_row_),
        blocks_(static_cast<std::size_t>(num_blocks_ * model.info().cache.bytes_per_block)),
        states_(static_cast<std::size_t>(num_sequences * model.info().cache.state_bytes_per_slot)),
        token_ids_(static_cast<std::size_t>(num_sequences)),
        num_tokens_(static_cast<std::size_t>(num_sequences)) {
    for (std::int32_t row = 0; row < num_sequences; ++row) {
      for (std::int32_t i = 0; i < blocks_per_row_; ++i) {
        block_tables_.push_back(num_blocks_ - 1 - (i * num_sequences + row));
      }
    }
  }

  /// Continues sequence i with `new_ids[i]`, all in one step. Logits of all those tokens, or of the last one of each
  /// sequence that has any, [num_logits, vocab_size].
  std::vector<float> step(const std::vector<Ids>& new_ids, bool all_logits) {
    CHECK_EQ(new_ids.size(), num_tokens_.size());
    std::vector<std::int32_t> ids, positions, slots, logit_tokens;
    std::vector<std::int32_t> cu_seqlens{0};
    std::vector<Ids> histories;
    const std::vector<std::int32_t> zeros(new_ids.size(), 0);
    for (std::size_t row = 0; row < new_ids.size(); ++row) {
      std::vector<std::int32_t>& all_ids = token_ids_[row];
      all_ids.insert(all_ids.end(), new_ids[row].begin(), new_ids[row].end());
      histories.push_back(Ids(all_ids).first(all_ids.size() - new_ids[row].size()));
      for (const std::int32_t id : new_ids[row]) {
        if (all_logits) logit_tokens.push_back(static_cast<std::int32_t>(ids.size()));
        ids.push_back(id);
        positions.push_back(num_tokens_[row]++);
      }
      if (!all_logits && !new_ids[row].empty()) logit_tokens.push_back(static_cast<std::int32_t>(ids.size()) - 1);
      cu_seqlens.push_back(static_cast<std::int32_t>(ids.size()));
      slots.push_back(static_cast<std::int32_t>(row));
    }
    std::vector<float> logits(logit_tokens.size() * static_cast<std::size_t>(model_.info().vocab_size));
    const step::BatchView batch{.token_ids = ids,
                                .positions = positions,
                                .cu_seqlens = cu_seqlens,
                                .context_lens = num_tokens_,
                                .block_tables = block_tables_,
                                .max_blocks_per_row = blocks_per_row_,
                                .slots = slots,
                                .logit_tokens = logit_tokens,
                                .histories = histories,
                                .cached_lens = zeros,
                                .full_from = zeros};
    model_.forward(stream_, batch, memory(), logits.data());
    return logits;
  }

  /// Sequence i has slot i.
  CacheMemory memory() {
    return {.blocks = blocks_.data(),
            .num_blocks = num_blocks_,
            .states = states_.data(),
            .max_slots = static_cast<std::int32_t>(num_tokens_.size())};
  }

  /// A single sequence: all of `ids` in steps of at most `chunk` tokens, logits of all.
  std::vector<float> run(Ids ids, std::size_t chunk) {
    std::vector<float> logits;
    for (std::size_t first = 0; first < ids.size(); first += chunk) {
      const std::vector<float> part = step({ids.subspan(first, std::min(chunk, ids.size() - first))}, true);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    return logits;
  }

 private:
  Model& model_;
  device::Stream& stream_;
  std::int32_t blocks_per_row_;
  std::int32_t num_blocks_;
  device::Buffer blocks_;
  device::Buffer states_;                             // zeroed, as a model finds the state of a new sequence
  std::vector<std::vector<std::int32_t>> token_ids_;  // of each sequence so far
  std::vector<std::int32_t> block_tables_;            // [num_sequences, blocks_per_row]
  std::vector<std::int32_t> num_tokens_;              // of each sequence so far
};

}  // namespace thalweg::models
