#include "kernels/moe/moe/gather.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/for_each_row.h"

namespace thalweg::kernels::experts {

Assignment sort_by_expert(const std::int32_t* expert_ids, std::int64_t num_pairs, std::size_t num_experts) {
  const auto expert_of = [&](std::int64_t pair) { return expert_ids == nullptr ? 0 : expert_ids[pair]; };
  Assignment result{.first = std::vector<std::int64_t>(num_experts + 1), .pairs = std::vector<std::int64_t>(num_pairs)};
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    const std::int32_t expert = expert_of(pair);
    CHECK_GE(expert, 0);
    CHECK_LT(static_cast<std::size_t>(expert), num_experts);
    ++result.first[expert + 1];
  }
  for (std::size_t expert = 0; expert < num_experts; ++expert) result.first[expert + 1] += result.first[expert];
  std::vector<std::int64_t> next = result.first;
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) result.pairs[next[expert_of(pair)]++] = pair;
  return result;
}

void gather_tokens(device::Stream& stream, const Assignment& assignment, std::int32_t top_k, std::int64_t hidden_size,
                   const float* x, float* gathered) {
  for_each_row(stream, assignment.num_pairs(), hidden_size, [&](std::int64_t place) {
    const float* row = x + assignment.pairs[place] / top_k * hidden_size;
    std::copy_n(row, hidden_size, gathered + place * hidden_size);
  });
}

void add_results(device::Stream& stream, const Assignment& assignment, std::int32_t top_k, std::int64_t hidden_size,
                 const float* results, const float* weights, float* out) {
  std::vector<std::int64_t> place_of_pair(assignment.num_pairs());
  for (std::int64_t place = 0; place < assignment.num_pairs(); ++place) place_of_pair[assignment.pairs[place]] = place;
  for_each_row(stream, assignment.num_pairs() / top_k, top_k * hidden_size, [&](std::int64_t token) {
    float* sum = out + token * hidden_size;
    for (std::int64_t pair = token * top_k; pair < (token + 1) * top_k; ++pair) {
      const float* result = results + place_of_pair[pair] * hidden_size;
      const float weight = weights == nullptr ? 1.0F : weights[pair];
      for (std::int64_t i = 0; i < hidden_size; ++i) sum[i] += weight * result[i];
    }
  });
}

}  // namespace thalweg::kernels::experts
