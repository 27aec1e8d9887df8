#include "kernels/linear/sm90_launch.h"

namespace thalweg::kernels::sm90 {

device::CudaStatus stream_fp8(const StreamLaunch& stream) {
  return choose_stream<LinearSm90Weights::kFp8>(stream, "stream_fp8");
}

device::CudaStatus stream_fp8_blocks(const StreamLaunch& stream) {
  return choose_stream<LinearSm90Weights::kFp8Blocks>(stream, "stream_fp8_blocks");
}

}  // namespace thalweg::kernels::sm90
