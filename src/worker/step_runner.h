// Runs one step: plan in, result out. Everything in it belongs to the worker's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/buffer.h"
#include "device/stream.h"
#include "models/model.h"
#include "sampling/row_loops.h"
#include "sampling/row_scratch.h"
#include "sampling/sequence_sampler.h"
#include "speculative/accept.h"
#include "speculative/proposer.h"
#include "step/step_plan.h"
#include "step/step_result.h"
#include "worker/memory_plan.h"
#include "worker/step_inputs.h"
#include "worker/worker_options.h"

namespace thalweg::worker {

class StepRunner {
 public:
  /// Takes the plan's memory and reserves the model's. `stream.threads` outlives the runner. `proposer` is null without
  /// speculation.
  StepRunner(std::unique_ptr<models::Model> model, device::Stream stream, const WorkerOptions& options,
             const MemoryPlan& plan, std::unique_ptr<speculative::Proposer> proposer);

  /// A row fails, and draws nothing more, when its logits cannot be drawn from or when a continued sequence has no room
  /// left in its blocks or the model length. What the step throws becomes `fatal`, then and ever after.
  step::StepResult run(const step::StepPlan& plan);

 private:
  struct Slot {
    std::vector<std::int32_t> tokens;
    std::vector<step::BlockId> blocks;
    std::int32_t num_prompt_tokens = 0;
    std::int32_t num_cached_tokens = 0;  // its first blocks hold them already, perhaps for others too
    std::int32_t full_from = 0;          // of the tokens it was started with; step::BatchView::full_from
    std::int32_t num_prompt_logprobs = -1;
    std::optional<sampling::SequenceSampler> sampler;  // empty: the slot is free
  };

  /// A row that draws, and what it drew.
  struct DrawingRow {
    std::size_t row = 0;  // in the plan
    Slot* slot = nullptr;
    std::span<const std::int32_t> drafts;
    std::span<const float* const> distributions;  // of `drafts`; speculative::Drafts
    std::int32_t first_logit = 0;
    std::int32_t num_accepted = 0;
    std::vector<std::int32_t> token_ids;
    std::vector<TokenLogprobs> logprobs;
    bool failed = false;
    std::string error;  // of an exception
  };

  void execute(const step::StepPlan& plan, step::StepResult& result);
  void release(step::SlotId id);
  void start(const step::SequenceStart& start);
  void append_blocks(const step::StepPlan& plan);
  void propose(const step::StepPlan& plan);
  std::int32_t room_of(const Slot& slot) const;
  void score_prompts(const step::StepPlan& plan, step::StepResult& result);
  bool score_piece(const Slot& slot, std::int32_t first_position, std::int32_t num_tokens,
                   std::vector<TokenLogprobs>& out);
  static RowInput known_tokens(step::SlotId id, const Slot& slot, std::int32_t first_position, std::int32_t num_tokens);
  void add_rows(const step::StepPlan& plan, step::StepResult& result);
  void add_continued(const step::StepPlan& plan, std::size_t row, step::StepResult& result);
  void add_known(const step::StepPlan& plan, std::size_t row, step::StepResult& result);
  DrawingRow& new_drawing_row(std::size_t row, Slot& slot, std::int32_t first_logit);
  void forward();
  void draw_all();
  void draw(DrawingRow& drawing, sampling::RowScratch& scratch);
  std::optional<speculative::Verdict> judge(const DrawingRow& drawing, std::size_t i, sampling::RowScratch& scratch,
                                            TokenLogprobs* logprobs);
  std::optional<speculative::Verdict> judge_forced(const DrawingRow& drawing, std::size_t i, bool holds,
                                                   sampling::RowScratch& scratch, TokenLogprobs* logprobs);
  void observe_drafts(const step::StepPlan& plan);
  void gather(step::StepResult& result) const;

  Slot& used_slot(step::SlotId id);
  std::span<float> logits_of(std::int32_t index);
  models::CacheMemory cache_memory();

  // Fixed at start.
  const std::unique_ptr<models::Model> model_;
  device::Stream stream_;
  const WorkerOptions options_;
  const MemoryPlan plan_;
  const sampling::RowLoops& loops_;
  const std::unique_ptr<speculative::Proposer> proposer_;
  SteadyClock clock_;

  // Memory.
  device::Buffer blocks_;
  device::Buffer states_;
  device::Buffer logits_;  // [max_logit_rows, vocab_size]

  // Sequences.
  std::vector<Slot> slots_;
  std::optional<Error> fatal_;

  // One step's work, kept for its memory.
  StepInputs inputs_;
  std::vector<speculative::DraftRequest> draft_requests_;
  std::vector<std::int32_t> request_of_row_;  // -1: none
  speculative::Drafts drafts_;
  std::vector<DrawingRow> drawing_;  // the first num_drawing_ are in use
  std::size_t num_drawing_ = 0;
  std::vector<sampling::RowScratch> scratch_;  // per thread
};

}  // namespace thalweg::worker
