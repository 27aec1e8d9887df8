// The definition, with the order of sums that versions.h promises.
#include <algorithm>
#include <vector>

#include "device/float_types.h"
#include "kernels/index/versions.h"

namespace thalweg::kernels::index {
namespace {

float rounded(float value, bool rounds_bf16) {
  return rounds_bf16 ? device::float_from_bf16(device::bf16_from_float(value)) : value;
}

float dot(const float* q, const float* key, std::int32_t head_dim) {
  float sum = 0.0F;
  for (std::int32_t first = 0; first < head_dim; first += kGroup) {
    const std::int32_t end = std::min(head_dim, first + kGroup);
    float group_sum = 0.0F;
    for (std::int32_t d = first; d < end; ++d) group_sum += q[d] * key[d];
    sum += group_sum;
  }
  return sum;
}

}  // namespace

void score_reference(const ScoreArgs& args) {
  std::vector<float> key(args.head_dim);
  for (std::int32_t entry = 0; entry < kTileEntries; ++entry) {
    dequantize_row(args.format, args.keys[entry], args.head_dim, key.data());
    float score = 0.0F;
    for (std::int32_t head = 0; head < args.num_heads; ++head) {
      const float product = dot(args.q + std::int64_t{head} * args.head_dim, key.data(), args.head_dim);
      const float positive = std::max(0.0F, rounded(product, args.rounds_bf16));
      score += rounded(args.weights[head] * positive, args.rounds_bf16);
    }
    args.scores[entry] = rounded(score, args.rounds_bf16);
  }
}

}  // namespace thalweg::kernels::index
