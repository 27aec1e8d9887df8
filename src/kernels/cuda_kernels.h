// The GPU kernels of libthalweg_cuda.so, and how dispatch reaches them. docs/decisions/0016-cuda.md tells the pattern.
#pragma once

#include "kernels/norm/rms_norm/sm90.h"

namespace thalweg::kernels {

/// One entry per operation, declared in its folder's sm90.h and defined in its sm90.cu.
struct CudaKernels {
  norm::RmsNormSm90* rms_norm;
};

}  // namespace thalweg::kernels
