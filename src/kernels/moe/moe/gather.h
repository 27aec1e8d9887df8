// Tokens sorted by expert, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/stream.h"

namespace thalweg::kernels::experts {

/// The (token, rank) pairs of each expert, numbered token * top_k + rank, in rising order. A pair's index in `pairs` is
/// its place.
struct Assignment {
  std::vector<std::int64_t> first;  // [num_experts + 1], into `pairs`
  std::vector<std::int64_t> pairs;  // [num_tokens * top_k]

  std::int64_t num_pairs() const { return static_cast<std::int64_t>(pairs.size()); }
};

/// expert_ids: [num_pairs], or null when all are expert 0.
Assignment sort_by_expert(const std::int32_t* expert_ids, std::int64_t num_pairs, std::size_t num_experts);

/// gathered [num_pairs, hidden_size] = per place, its token's row of x.
void gather_tokens(device::Stream& stream, const Assignment& assignment, std::int32_t top_k, std::int64_t hidden_size,
                   const float* x, float* gathered);

/// out [num_tokens, hidden_size] += each token's results times their weights, in the order of the ranks. results:
/// [num_pairs, hidden_size] by place; weights: [num_pairs] by pair, or null for ones.
void add_results(device::Stream& stream, const Assignment& assignment, std::int32_t top_k, std::int64_t hidden_size,
                 const float* results, const float* weights, float* out);

}  // namespace thalweg::kernels::experts
