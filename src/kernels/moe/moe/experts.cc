#include <cstdint>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/moe/gather.h"

namespace thalweg::kernels {

void moe_experts(device::Stream& stream, const MoeExpertsParams& params) {
  if (params.num_tokens == 0 || params.top_k == 0) return;
  CHECK(!params.gate_up.empty());
  CHECK_EQ(params.gate_up.size(), params.down.size());
  const std::int64_t hidden_size = params.down[0].num_rows();
  const std::int64_t intermediate_size = params.down[0].num_cols();
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  const experts::Assignment assignment = experts::sort_by_expert(params.expert_ids, num_pairs, params.gate_up.size());

  const std::int64_t num_scratch = num_pairs * (hidden_size + intermediate_size);
  auto* const gathered =
      reinterpret_cast<float*>(stream.threads->scratch(device::ScratchSlot::kMoe, num_scratch * sizeof(float)));
  float* const activated = gathered + num_pairs * hidden_size;
  experts::gather_tokens(stream, assignment, params.top_k, hidden_size, params.x, gathered);

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
  experts::add_results(stream, assignment, params.top_k, hidden_size, gathered, params.weights, params.out);
}

}  // namespace thalweg::kernels
