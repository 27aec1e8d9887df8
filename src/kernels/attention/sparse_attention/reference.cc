// The definition, one head at a time, all sums in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "device/float_types.h"
#include "kernels/attention/sparse_attention/versions.h"

namespace thalweg::kernels::sparse {
namespace {

float rounded(double value, bool rounds_bf16) {
  const auto narrow = static_cast<float>(value);
  return rounds_bf16 ? device::float_from_bf16(device::bf16_from_float(narrow)) : narrow;
}

void attend_head(const AttendArgs& args, const float* q, float sink, float* weights, float* out) {
  float highest = kLeastMax;
  for (std::int32_t row = 0; row < args.num_rows; ++row) {
    double score = 0.0;
    for (std::int32_t d = 0; d < args.head_dim; ++d) score += double{q[d]} * args.rows[row * args.row_stride + d];
    weights[row] = static_cast<float>(score * args.scale);
    highest = std::max(highest, weights[row]);
  }

  double total = std::exp(double{sink} - highest);
  for (std::int32_t row = 0; row < args.num_rows; ++row) {
    const double weight = std::exp(double{weights[row]} - highest);
    total += weight;
    weights[row] = rounded(weight, args.rounds_bf16);
  }

  std::vector<double> sums(args.head_dim, 0.0);
  for (std::int32_t row = 0; row < args.num_rows; ++row) {
    for (std::int32_t d = 0; d < args.head_dim; ++d) {
      sums[d] += double{weights[row]} * args.rows[row * args.row_stride + d];
    }
  }
  for (std::int32_t d = 0; d < args.head_dim; ++d) out[d] = rounded(sums[d] / total, args.rounds_bf16);
}

}  // namespace

void attend_reference(const AttendArgs& args) {
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    const std::int64_t offset = std::int64_t{head} * args.head_dim;
    attend_head(args, args.q + offset, args.sinks[head], args.weights + head * padded_rows(args.num_rows),
                args.out + offset);
  }
}

}  // namespace thalweg::kernels::sparse
