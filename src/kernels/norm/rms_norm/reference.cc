#include <cmath>

#include "kernels/norm/rms_norm/versions.h"

namespace thalweg::kernels::norm {

void rms_norm_row_reference(const float* x, std::int64_t num_cols, const float* weight, float epsilon, float* out) {
  double sum_of_squares = 0.0;
  for (std::int64_t i = 0; i < num_cols; ++i) sum_of_squares += double{x[i]} * x[i];
  const double scale = 1.0 / std::sqrt(sum_of_squares / static_cast<double>(num_cols) + epsilon);
  for (std::int64_t i = 0; i < num_cols; ++i) {
    out[i] = static_cast<float>(x[i] * scale * (weight == nullptr ? 1.0F : weight[i]));
  }
}

}  // namespace thalweg::kernels::norm
