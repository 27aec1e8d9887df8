// One row per call; num_cols may be anything.
#pragma once

#include <cstdint>

namespace thalweg::kernels::norm {

/// `weight` may be null, `out` may be `x`.
using RmsNormRow = void(const float* x, std::int64_t num_cols, const float* weight, float epsilon, float* out);

RmsNormRow rms_norm_row_reference;  // sum in double
RmsNormRow rms_norm_row_avx2;

}  // namespace thalweg::kernels::norm
