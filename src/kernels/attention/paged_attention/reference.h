// The slow truth beside the fast versions.
#pragma once

#include <cstdint>

#include "kernels/attention/paged_attention.h"
#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {

/// Any layout. Writes keys and values of `num_tokens` tokens of one row.
void write_kv_reference(const WriteKvArgs& args);

/// Any layout. All heads of one token.
void attend_reference(const PagedAttentionParams& params, const SequenceBlocks& blocks, std::int32_t token);

}  // namespace thalweg::kernels::attention
