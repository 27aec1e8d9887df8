// The parts of a block besides attention: mixing of the residual streams, experts, Engram (DeepSeek-V4.1
// specification, sections 2, 5 and 6).
#pragma once

#include <cstdint>
#include <span>

#include "models/deepseek_v41/pass.h"
#include "models/deepseek_v41/weights.h"

namespace thalweg::models::deepseek_v41 {

/// work.streams: each stream is the token's embedding; work.pre looks at the first of them.
void embed(Pass& pass, const layers::Vocabulary& vocabulary, std::span<const std::int32_t> token_ids);

/// The beginning of a sublayer: mixing weights of the streams for its end into work.post and work.comb and for the next
/// sublayer into `next_pre`, then work.x = norm(streams collapsed by `pre`). V4.1 collapses one sublayer late.
void begin_sublayer(Pass& pass, const MixWeights& mix, const layers::Norm& norm, const float* pre, float* next_pre);

/// The end of a sublayer: work.out goes into the streams.
void end_sublayer(Pass& pass);

/// work.x -> work.out.
void run_experts(Pass& pass, const ExpertWeights& weights, const ExpertSettings& settings, std::int32_t layer);

/// Adds what the tables know about the last tokens of each position to work.streams. `classes` are the token classes of
/// the vocabulary.
void add_engram(Pass& pass, const EngramWeights& weights, const kernels::EngramHash& hash,
                std::span<const std::int32_t> classes, std::int32_t layer);

/// out [count, hidden_size] = norm(streams collapsed by `pre`), without the norm if it is null.
void collapse(Pass& pass, std::int64_t count, const float* streams, const float* pre, const layers::Norm* norm,
              float* out);

}  // namespace thalweg::models::deepseek_v41
