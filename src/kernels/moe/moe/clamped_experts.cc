#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "device/float_types.h"
#include "device/thread_pool.h"
#include "kernels/for_each_row.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/moe/gather.h"
#include "kernels/quant/quant.h"

namespace thalweg::kernels {
namespace {

/// Each expert's matrix on its places: x and out by place, rows of `x_stride` and of the matrix's own height.
void project(device::Stream& stream, const experts::Assignment& assignment, std::span<const LinearWeight> weights,
             const float* x, std::int64_t x_stride, float* out) {
  for (std::size_t expert = 0; expert < weights.size(); ++expert) {
    const std::int64_t first = assignment.first[expert];
    const std::int64_t out_stride = weights[expert].num_rows();
    linear(stream, {.x = x + first * x_stride,
                    .x_stride = x_stride,
                    .num_tokens = assignment.first[expert + 1] - first,
                    .weight = &weights[expert],
                    .out = out + first * out_stride,
                    .out_stride = out_stride});
  }
}

/// One row of interleaved gates and ups becomes its activation, in the first half of the row.
void activate(const ClampedExpertsParams& params, float weight, std::int64_t intermediate_size, float* row) {
  const auto rounded = [&](float value) {
    return params.rounds_bf16 ? device::float_from_bf16(device::bf16_from_float(value)) : value;
  };
  for (std::int64_t i = 0; i < intermediate_size; ++i) {
    float gate = rounded(row[2 * i]);
    float up = rounded(row[2 * i + 1]);
    if (params.limit != 0.0F) {
      gate = std::min(gate, params.limit);
      up = std::clamp(up, -params.limit, params.limit);
    }
    row[i] = rounded(gate / (1.0F + std::exp(-gate)) * up * weight);
  }
  if (params.quantizes_activations) fake_quantize_row(QuantFormat::kF8Block32, row, intermediate_size, row);
}

}  // namespace

void moe_clamped_experts(device::Stream& stream, const ClampedExpertsParams& params) {
  if (params.num_tokens == 0 || params.top_k == 0) return;
  CHECK(!params.gate_up.empty());
  CHECK_EQ(params.gate_up.size(), params.down.size());
  CHECK(params.expert_ids != nullptr || params.top_k == 1);
  const std::int64_t hidden_size = params.down[0].num_rows();
  const std::int64_t intermediate_size = params.down[0].num_cols();
  CHECK_EQ(params.gate_up[0].num_rows(), 2 * intermediate_size);
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  const experts::Assignment assignment = experts::sort_by_expert(params.expert_ids, num_pairs, params.gate_up.size());

  const std::int64_t num_scratch = num_pairs * (hidden_size + 2 * intermediate_size);
  auto* const hidden =  // per place its token, then its result
      reinterpret_cast<float*>(stream.threads->scratch(device::ScratchSlot::kMoe, num_scratch * sizeof(float)));
  float* const inner = hidden + num_pairs * hidden_size;
  experts::gather_tokens(stream, assignment, params.top_k, hidden_size, params.x, hidden);
  project(stream, assignment, params.gate_up, hidden, hidden_size, inner);

  const float* weights_before = params.weighs_before_down ? params.weights : nullptr;
  const float* weights_after = params.weighs_before_down ? nullptr : params.weights;
  constexpr std::int64_t kActivationCost = 16;  // an exponential, a division and perhaps an FP8 code
  for_each_row(stream, num_pairs, kActivationCost * intermediate_size, [&](std::int64_t place) {
    const float weight = weights_before == nullptr ? 1.0F : weights_before[assignment.pairs[place]];
    activate(params, weight, intermediate_size, inner + place * 2 * intermediate_size);
  });

  project(stream, assignment, params.down, inner, 2 * intermediate_size, hidden);
  if (params.rounds_bf16) round_bf16(stream, hidden, num_pairs * hidden_size);
  experts::add_results(stream, assignment, params.top_k, hidden_size, hidden, weights_after, params.out);
}

}  // namespace thalweg::kernels
