#include "kernels/linear/sm90_launch.h"

namespace thalweg::kernels::sm90 {

device::CudaStatus stream_bf16(const StreamLaunch& stream) {
  return choose_stream<LinearSm90Weights::kBF16>(stream, "stream_bf16");
}

}  // namespace thalweg::kernels::sm90
