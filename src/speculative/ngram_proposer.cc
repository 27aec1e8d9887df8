#include "speculative/ngram_proposer.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::speculative {
namespace {

std::uint64_t hash_of(std::span<const std::int32_t> ngram) {
  std::uint64_t hash = 0x9E3779B97F4A7C15;
  for (const std::int32_t token : ngram) {
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0xD6E8FEB86659FD93;
    hash ^= hash >> 32;
  }
  return hash;
}

std::span<const std::int32_t> ngram_before(std::span<const std::int32_t> tokens, std::int32_t end,
                                           std::int32_t length) {
  return tokens.subspan(static_cast<std::size_t>(end - length), static_cast<std::size_t>(length));
}

}  // namespace

/// Where that n-gram is or would be noted.
std::size_t NgramIndex::place(std::span<const std::int32_t> tokens, std::int32_t end) const {
  const auto ngram = ngram_before(tokens, end, length_);
  const std::size_t mask = ends_.size() - 1;
  std::size_t at = hash_of(ngram) & mask;
  while (ends_[at] >= 0 && !std::ranges::equal(ngram_before(tokens, ends_[at], length_), ngram)) at = (at + 1) & mask;
  return at;
}

void NgramIndex::grow(std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> old(std::max<std::size_t>(64, ends_.size() * 2), -1);
  old.swap(ends_);
  for (const std::int32_t end : old) {
    if (end >= 0) ends_[place(tokens, end)] = end;
  }
}

void NgramIndex::insert(std::span<const std::int32_t> tokens, std::int32_t end) {
  if (static_cast<std::size_t>(num_used_) * 2 >= ends_.size()) grow(tokens);
  std::int32_t& noted = ends_[place(tokens, end)];
  if (noted < 0) ++num_used_;
  noted = end;
}

std::int32_t NgramIndex::find(std::span<const std::int32_t> tokens, std::int32_t end) const {
  return ends_.empty() ? -1 : ends_[place(tokens, end)];
}

NgramProposer::NgramProposer(std::int32_t max_slots, std::int32_t max_drafts)
    : max_drafts_(max_drafts), slots_(static_cast<std::size_t>(max_slots)) {
  for (std::int32_t slot = 0; slot < max_slots; ++slot) release(slot);
}

void NgramProposer::release(step::SlotId slot) {
  slots_[static_cast<std::size_t>(slot)] = {.limit = DraftLimit(max_drafts_), .num_indexed = 0, .by_length = {}};
}

void NgramProposer::observe(step::SlotId slot, std::int32_t num_drafts, std::int32_t num_accepted) {
  slots_[static_cast<std::size_t>(slot)].limit.observe(num_drafts, num_accepted);
}

/// Notes all n-grams but the suffix itself, which would only find itself.
void NgramProposer::catch_up(SlotIndex& index, std::span<const std::int32_t> tokens) const {
  const std::int32_t last = std::max(0, static_cast<std::int32_t>(tokens.size()) - 1);
  CHECK_LE(index.num_indexed, last);
  for (std::int32_t length = kMinLength; index.by_length.size() < kMaxLength - kMinLength + 1; ++length) {
    index.by_length.emplace_back(length);
  }
  for (std::int32_t length = kMinLength; length <= kMaxLength; ++length) {
    NgramIndex& ngrams = index.by_length[static_cast<std::size_t>(length - kMinLength)];
    for (std::int32_t end = std::max(index.num_indexed + 1, length); end <= last; ++end) ngrams.insert(tokens, end);
  }
  index.num_indexed = last;
}

std::int32_t NgramProposer::find_suffix(const SlotIndex& index, std::span<const std::int32_t> tokens) const {
  const auto size = static_cast<std::int32_t>(tokens.size());
  for (std::int32_t length = std::min(kMaxLength, size); length >= kMinLength; --length) {
    const std::int32_t end = index.by_length[static_cast<std::size_t>(length - kMinLength)].find(tokens, size);
    if (end >= 0) return end;
  }
  return -1;
}

void NgramProposer::propose_for(const DraftRequest& request, std::vector<std::int32_t>& drafts) {
  SlotIndex& index = slots_[static_cast<std::size_t>(request.slot)];
  const std::int32_t max_drafts = std::min(request.max_drafts, index.limit.next());
  if (max_drafts <= 0) return;
  const std::span<const std::int32_t> tokens = *request.tokens;
  catch_up(index, tokens);
  const std::int32_t end = find_suffix(index, tokens);
  if (end < 0) return;
  const auto size = static_cast<std::int32_t>(tokens.size());
  const std::size_t first = drafts.size();
  for (std::int32_t i = end; i < end + max_drafts; ++i) {
    drafts.push_back(i < size ? tokens[static_cast<std::size_t>(i)]
                              : drafts[first + static_cast<std::size_t>(i - size)]);
  }
}

void NgramProposer::propose(device::Stream&, const models::CacheMemory&, std::span<const DraftRequest> requests,
                            Drafts& drafts) {
  drafts.token_ids.clear();
  drafts.distributions.clear();
  drafts.cu_drafts.assign(1, 0);
  for (const DraftRequest& request : requests) {
    propose_for(request, drafts.token_ids);
    drafts.cu_drafts.push_back(static_cast<std::int32_t>(drafts.token_ids.size()));
  }
}

}  // namespace thalweg::speculative
