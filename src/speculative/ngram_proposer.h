// Prompt lookup: what followed the last time these tokens stood here.
#pragma once

#include <cstdint>
#include <vector>

#include "speculative/draft_limit.h"
#include "speculative/proposer.h"

namespace thalweg::speculative {

/// The most recent place of every n-gram of one length in a growing text: a hash table of positions, compared by the
/// text itself, so it takes about 10 bytes per token and never confuses n-grams.
class NgramIndex {
 public:
  explicit NgramIndex(std::int32_t length) : length_(length) {}

  /// Notes the n-gram that ends before `end`; a later one with the same tokens replaces it.
  void insert(std::span<const std::int32_t> tokens, std::int32_t end);
  /// The noted end of the n-gram that ends before `end`, or -1.
  std::int32_t find(std::span<const std::int32_t> tokens, std::int32_t end) const;

 private:
  std::size_t place(std::span<const std::int32_t> tokens, std::int32_t end) const;
  void grow(std::span<const std::int32_t> tokens);

  std::int32_t length_;
  std::int32_t num_used_ = 0;
  std::vector<std::int32_t> ends_;  // power of two; -1: empty
};

/// Looks for the longest suffix of 4, 3 or 2 tokens that occurred before and proposes what followed its most recent
/// occurrence; where that runs into the end of the text it goes on with the proposal itself, so a loop is proposed as
/// often as asked for. A step costs what the new tokens cost, the first one of a sequence its prompt.
class NgramProposer final : public Proposer {
 public:
  static constexpr std::int32_t kMinLength = 2;
  static constexpr std::int32_t kMaxLength = 4;

  /// At most `max_drafts` per row and step.
  NgramProposer(std::int32_t max_slots, std::int32_t max_drafts);

  void propose(device::Stream& stream, const models::CacheMemory& cache, std::span<const DraftRequest> requests,
               Drafts& drafts) override;
  void observe(step::SlotId slot, std::int32_t num_drafts, std::int32_t num_accepted) override;
  void release(step::SlotId slot) override;

 private:
  struct SlotIndex {
    DraftLimit limit;
    std::int32_t num_indexed = 0;  // n-grams that end at or before this many tokens are noted
    std::vector<NgramIndex> by_length;
  };

  void catch_up(SlotIndex& index, std::span<const std::int32_t> tokens) const;
  std::int32_t find_suffix(const SlotIndex& index, std::span<const std::int32_t> tokens) const;
  void propose_for(const DraftRequest& request, std::vector<std::int32_t>& drafts);

  const std::int32_t max_drafts_;
  std::vector<SlotIndex> slots_;
};

}  // namespace thalweg::speculative
