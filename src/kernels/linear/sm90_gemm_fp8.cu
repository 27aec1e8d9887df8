#include "kernels/linear/sm90_launch.h"

namespace thalweg::kernels::sm90 {

device::CudaStatus gemm_fp8(const GemmLaunch& gemm) {
  return choose_gemm<ptx::Operand::kE4M3, Sums::kOneLevel>(gemm, "gemm_fp8");
}

device::CudaStatus gemm_fp8_blocks(const GemmLaunch& gemm) {
  return choose_gemm<ptx::Operand::kE4M3, Sums::kBlocks>(gemm, "gemm_fp8_blocks");
}

}  // namespace thalweg::kernels::sm90
