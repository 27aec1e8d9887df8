#include "scheduler/sequence_blocks.h"

#include <algorithm>
#include <span>

namespace thalweg::scheduler {
namespace {

std::int32_t token_at(const Sequence& sequence, std::int32_t position) {
  const std::int32_t output = position - sequence.num_prompt_tokens();
  return output < 0 ? (*sequence.request->prompt_ids)[static_cast<std::size_t>(position)]
                    : sequence.output_ids[static_cast<std::size_t>(output)];
}

const kv_cache::BlockHash& hash_at(const Sequence& sequence, std::size_t block) {
  const std::vector<kv_cache::BlockHash>& prompt_hashes = sequence.request->prompt_hashes;
  return block < prompt_hashes.size() ? prompt_hashes[block] : sequence.output_hashes[block - prompt_hashes.size()];
}

}  // namespace

std::int32_t SequenceBlocks::num_missing(const Sequence& sequence, std::int32_t num_tokens) const {
  return std::max(kv_.blocks_for(num_tokens) - static_cast<std::int32_t>(sequence.blocks.size()), 0);
}

void SequenceBlocks::extend_hashes(Sequence& sequence, std::int32_t num_tokens) const {
  const std::int32_t block_size = kv_.spec().block_size;
  const std::size_t num_prompt_hashes = sequence.request->prompt_hashes.size();
  std::vector<std::int32_t> token_ids(static_cast<std::size_t>(block_size));
  for (std::size_t block = num_prompt_hashes + sequence.output_hashes.size();
       (static_cast<std::int32_t>(block) + 1) * block_size <= num_tokens; ++block) {
    for (std::int32_t i = 0; i < block_size; ++i) {
      token_ids[static_cast<std::size_t>(i)] = token_at(sequence, static_cast<std::int32_t>(block) * block_size + i);
    }
    const kv_cache::BlockHash& parent = block == 0 ? sequence.request->root_hash : hash_at(sequence, block - 1);
    sequence.output_hashes.push_back(hasher_.next(parent, token_ids));
  }
}

void SequenceBlocks::find_cached(Sequence& sequence, PrefixHit& hit) const {
  if (!kv_.prefix_cache_enabled()) return;
  const std::int32_t num_tokens = sequence.num_known_tokens();
  kv_.find_run(sequence.request->prompt_hashes, hit.blocks);
  if (hit.blocks.size() == sequence.request->prompt_hashes.size() && !sequence.output_ids.empty()) {
    extend_hashes(sequence, num_tokens);
    std::vector<kv_cache::BlockId> more;
    kv_.find_run(sequence.output_hashes, more);
    hit.blocks.insert(hit.blocks.end(), more.begin(), more.end());
  }
  const std::int64_t num_hit_tokens = static_cast<std::int64_t>(hit.blocks.size()) * kv_.spec().block_size;
  hit.num_cached_tokens = kv_cache::cut_hit(kv_.spec(), num_hit_tokens, num_tokens);
  hit.from_prefix_cache = true;
}

void SequenceBlocks::find_sibling(const Sequence& sequence, PrefixHit& hit) const {
  const std::vector<Sequence>& siblings = sequence.request->sequences;
  const auto best = std::ranges::max_element(siblings, {}, &Sequence::num_submitted_tokens);
  const std::int32_t num_shared = std::min(best->num_submitted_tokens, sequence.num_prompt_tokens());
  const std::int32_t num_cached_tokens = kv_cache::cut_hit(kv_.spec(), num_shared, sequence.num_known_tokens());
  if (num_cached_tokens <= hit.num_cached_tokens) return;
  hit.num_cached_tokens = num_cached_tokens;
  hit.blocks = best->blocks;
  hit.from_prefix_cache = false;
}

PrefixHit SequenceBlocks::find_hit(Sequence& sequence) const {
  PrefixHit hit;
  if (!sequence.wants_prompt_logprobs() || sequence.started) {
    find_cached(sequence, hit);
    if (sequence.request->sequences.size() > 1) find_sibling(sequence, hit);
  }
  hit.blocks.resize(static_cast<std::size_t>(hit.num_cached_tokens / kv_.spec().block_size));
  hit.num_free_blocks = kv_.count_free(hit.blocks);
  return hit;
}

void SequenceBlocks::release(Sequence& sequence) {
  kv_.release_all(sequence.blocks);
  sequence.num_sent_blocks = 0;
  sequence.num_published_blocks = 0;
}

void SequenceBlocks::publish(Sequence& sequence, std::int32_t num_tokens) {
  if (!kv_.prefix_cache_enabled()) return;
  const auto num_full = static_cast<std::size_t>(num_tokens / kv_.spec().block_size);
  if (num_full <= sequence.num_published_blocks) return;
  extend_hashes(sequence, num_tokens);
  for (; sequence.num_published_blocks < num_full; ++sequence.num_published_blocks) {
    kv_.publish(sequence.blocks[sequence.num_published_blocks], hash_at(sequence, sequence.num_published_blocks));
  }
}

void SequenceBlocks::forget(Sequence& sequence) {
  kv_.forget(sequence.request->prompt_hashes);
  kv_.forget(sequence.output_hashes);
}

}  // namespace thalweg::scheduler
