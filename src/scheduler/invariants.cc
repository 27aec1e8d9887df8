// What must be true between any two calls of a scheduler.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace thalweg::scheduler {
namespace {

void check_resting(const Sequence& sequence) {
  CHECK(sequence.blocks.empty());
  CHECK_EQ(sequence.slot, -1);
  CHECK_EQ(sequence.num_computed_tokens, 0);
  CHECK_EQ(sequence.num_submitted_tokens, 0);
}

void check_running(const Sequence& sequence, std::int32_t block_size) {
  CHECK_GE(sequence.slot, 0);
  CHECK_GT(sequence.num_start_tokens, 0);
  CHECK_GE(sequence.num_known_tokens(), sequence.num_start_tokens);
  CHECK_LE(sequence.num_computed_tokens, sequence.num_target_tokens());
  if (sequence.continues() && sequence.request->max_tokens > 0) {
    CHECK_EQ(sequence.num_computed_tokens, sequence.num_known_tokens() + sequence.min_tokens_in_flight - 1);
  }
  CHECK_LE(sequence.num_known_tokens() + sequence.max_tokens_in_flight, sequence.max_num_tokens() + 1);
  CHECK_GE(static_cast<std::int64_t>(sequence.blocks.size()) * block_size, sequence.num_computed_tokens);
  CHECK_EQ(sequence.num_sent_blocks, sequence.blocks.size());
  CHECK_LE(sequence.num_published_blocks, sequence.blocks.size());
}

}  // namespace

void Scheduler::check_invariants() const {
  CHECK(std::ranges::is_sorted(running_, RunsBefore()));
  CHECK_LE(num_running(), limits_.max_num_seqs);

  std::int32_t num_unfinished = 0;
  std::size_t num_waiting_sequences = 0;
  std::vector<const std::vector<kv_cache::BlockId>*> tables;
  std::vector<int> num_slot_owners(static_cast<std::size_t>(limits_.max_num_seqs), 0);
  for (const auto& [id, request] : requests_) {
    std::int32_t num_left = 0;
    bool somebody_computes_the_prompt = request->prompt_submitted;
    bool somebody_held = false;
    for (const Sequence& sequence : request->sequences) {
      const bool finished = sequence.state == SequenceState::kFinished;
      if (!finished) ++num_left;
      if (sequence.state == SequenceState::kHeld) somebody_held = true;
      if (sequence.state == SequenceState::kWaiting) {
        ++num_waiting_sequences;
        CHECK(waiting_.contains(&sequence));
      }
      if (sequence.state != SequenceState::kRunning) {
        check_resting(sequence);
        somebody_computes_the_prompt |= sequence.state == SequenceState::kWaiting;
        continue;
      }
      somebody_computes_the_prompt = true;
      check_running(sequence, kv_.spec().block_size);
      CHECK(std::ranges::find(running_, &sequence) != running_.end());
      ++num_slot_owners[static_cast<std::size_t>(sequence.slot)];
      tables.push_back(&sequence.blocks);
    }
    CHECK(!somebody_held || somebody_computes_the_prompt);
    CHECK_GT(num_left, 0);
    CHECK_EQ(num_left, request->num_unfinished);
    num_unfinished += num_left;
  }
  CHECK_EQ(num_unfinished, num_unfinished_);
  CHECK_EQ(num_waiting_sequences, waiting_.size());
  CHECK_EQ(tables.size(), running_.size());
  CHECK_EQ(totals_.num_sequences_admitted, totals_.num_sequences_finished + totals_.num_sequences_cancelled +
                                               totals_.num_sequences_failed +
                                               static_cast<std::uint64_t>(num_unfinished));

  for (step::SlotId slot : free_slots_) ++num_slot_owners[static_cast<std::size_t>(slot)];
  for (int num_owners : num_slot_owners) CHECK_EQ(num_owners, 1);
  kv_.check_invariants(tables);
}

}  // namespace thalweg::scheduler
