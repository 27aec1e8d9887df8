// What whoever loads a model may choose.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/dtype.h"
#include "device/stream.h"
#include "models/model.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models {

/// How a model trained with narrow activations computes; each family says what it means for its operations.
enum class Numerics : std::uint8_t {
  kFp32,       // activations are never rounded; what the cache stores is
  kReference,  // rounds wherever the model's specification does
  kFast,       // rounds as accelerators do
};

struct LoadOptions {
  device::DType kv_dtype = device::DType::kF16;   // kF16, kBF16 or kF32
  std::int32_t block_size = 16;                   // tokens per cache block
  std::function<void(double fraction)> progress;  // may be empty; called on the loading thread

  // For the models that know them.
  Numerics numerics = Numerics::kReference;
  std::int32_t prefill_tail_tokens = -1;  // ModelInfo::prefill_tail_tokens; 0: off, -1: the model's own
  bool replays_whole_hits = false;        // CacheSpec::replay_tokens reaches back to the begin, so hits are exact
  bool loads_draft_model = false;         // Model::draft_model
  std::int32_t max_draft_tokens = 0;      // per row and step, so that state can be rolled back that far
  /// Classes of token ids that look alike, [vocab_size], made from the tokenizer; called by models with an n-gram
  /// memory.
  std::function<Result<std::vector<std::int32_t>>()> token_classes;
};

/// One per architecture: reads the configuration, checks it, packs the weights.
using LoadFunction = Result<std::unique_ptr<Model>> (*)(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                                        const LoadOptions& options);

}  // namespace thalweg::models
