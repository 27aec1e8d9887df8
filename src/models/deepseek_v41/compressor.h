// Compressed entries and their index keys, made from the input of a kv source's attention (DeepSeek-V4.1
// specification, sections 3.4 and 3.5).
#pragma once

#include <cstdint>

#include "models/deepseek_v41/pass.h"
#include "models/deepseek_v41/weights.h"

namespace thalweg::models::deepseek_v41 {

/// Reads work.x of all tokens of the pass, writes every entry whose group they complete and that the sequence's blocks
/// do not hold yet, and remembers what groups that are still open need.
void compress(Pass& pass, const CompressorWeights& weights, std::int32_t ratio, std::int32_t layer);

}  // namespace thalweg::models::deepseek_v41
