#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/moe/moe.h"

namespace thalweg::kernels {
namespace {

/// The (token, rank) pairs of each expert, numbered token * top_k + rank, in rising order.
struct Assignment {
  std::vector<std::int64_t> first;  // [num_experts + 1], into `pairs`
  std::vector<std::int64_t> pairs;  // [num_tokens * top_k]
};

Assignment sort_by_expert(const MoeExpertsParams& params) {
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  const std::size_t num_experts = params.gate_up.size();
  Assignment result{.first = std::vector<std::int64_t>(num_experts + 1), .pairs = std::vector<std::int64_t>(num_pairs)};
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    const std::int32_t expert = params.expert_ids[pair];
    CHECK_GE(expert, 0);
    CHECK_LT(static_cast<std::size_t>(expert), num_experts);
    ++result.first[expert + 1];
  }
  for (std::size_t expert = 0; expert < num_experts; ++expert) result.first[expert + 1] += result.first[expert];
  std::vector<std::int64_t> next = result.first;
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) result.pairs[next[params.expert_ids[pair]]++] = pair;
  return result;
}

template <typename Body>
void for_each_row(device::Stream& stream, std::int64_t num_rows, std::int64_t num_cols, Body body) {
  constexpr std::int64_t kElementsPerTask = 64 * 1024;  // ten microseconds of one thread
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, kElementsPerTask / num_cols);
  const auto run_task = [&](std::int64_t task, int) {
    const std::int64_t end = std::min(num_rows, (task + 1) * rows_per_task);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) body(row);
  };
  if (num_rows <= rows_per_task) {
    run_task(0, 0);
  } else {
    stream.threads->parallel_for((num_rows + rows_per_task - 1) / rows_per_task, run_task);
  }
}

}  // namespace

void moe_experts(device::Stream& stream, const MoeExpertsParams& params) {
  if (params.num_tokens == 0 || params.top_k == 0) return;
  CHECK(!params.gate_up.empty());
  CHECK_EQ(params.gate_up.size(), params.down.size());
  const std::int64_t hidden_size = params.down[0].num_rows();
  const std::int64_t intermediate_size = params.down[0].num_cols();
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  const Assignment assignment = sort_by_expert(params);

  // Rows in the order of the experts: place i holds pair assignment.pairs[i].
  const std::int64_t num_scratch = num_pairs * (hidden_size + intermediate_size);
  auto* const gathered =
      reinterpret_cast<float*>(stream.threads->scratch(device::ScratchSlot::kMoe, num_scratch * sizeof(float)));
  float* const activated = gathered + num_pairs * hidden_size;
  for_each_row(stream, num_pairs, hidden_size, [&](std::int64_t place) {
    const float* row = params.x + assignment.pairs[place] / params.top_k * hidden_size;
    std::copy_n(row, hidden_size, gathered + place * hidden_size);
  });

  for (std::size_t expert = 0; expert < params.gate_up.size(); ++expert) {
    const std::int64_t first = assignment.first[expert];
    const std::int64_t num_tokens = assignment.first[expert + 1] - first;
    if (num_tokens == 0) continue;
    float* hidden = gathered + first * hidden_size;  // input, then the expert's result
    float* inner = activated + first * intermediate_size;
    linear(stream, {.x = hidden,
                    .x_stride = hidden_size,
                    .num_tokens = num_tokens,
                    .weight = &params.gate_up[expert],
                    .out = inner,
                    .out_stride = intermediate_size,
                    .epilogue = Epilogue::kSiluMul});
    linear(stream, {.x = inner,
                    .x_stride = intermediate_size,
                    .num_tokens = num_tokens,
                    .weight = &params.down[expert],
                    .out = hidden,
                    .out_stride = hidden_size});
  }

  std::vector<std::int64_t> place_of_pair(num_pairs);
  for (std::int64_t place = 0; place < num_pairs; ++place) place_of_pair[assignment.pairs[place]] = place;
  for_each_row(stream, params.num_tokens, hidden_size, [&](std::int64_t token) {
    float* out = params.out + token * hidden_size;
    for (std::int32_t rank = 0; rank < params.top_k; ++rank) {
      const std::int64_t pair = token * params.top_k + rank;
      const float* result = gathered + place_of_pair[pair] * hidden_size;
      for (std::int64_t i = 0; i < hidden_size; ++i) out[i] += params.weights[pair] * result[i];
    }
  });
}

}  // namespace thalweg::kernels
