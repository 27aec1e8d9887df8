#include "kernels/linear/sm90_launch.h"

namespace thalweg::kernels::sm90 {

device::CudaStatus gemm_bf16(const GemmLaunch& gemm) {
  return choose_gemm<ptx::Operand::kBF16, Sums::kOneLevel>(gemm, "gemm_bf16");
}

}  // namespace thalweg::kernels::sm90
