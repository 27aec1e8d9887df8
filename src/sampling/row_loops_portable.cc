#include "sampling/row_loops_body.h"

namespace thalweg::sampling {

const RowLoops& portable_row_loops() { return kRowLoops; }

const RowLoops& row_loops(device::CpuLevel level) {
  return level >= device::CpuLevel::kAvx2 ? avx2_row_loops() : portable_row_loops();
}

float row_exp(float x) { return exp_of(all(x))[0]; }

}  // namespace thalweg::sampling
