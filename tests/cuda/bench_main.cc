// thalweg_cuda_bench [FILTER]: GPU kernels, one JSON line per case whose name begins with FILTER.
#include <fmt/format.h>

#include "device/cuda/cuda_bench.h"
#include "device/cuda/test_device.h"
#include "kernels/cuda_benches.h"

int main(int argc, char** argv) {
  using namespace thalweg;
  const Result<device::CudaDevice> device = device::find_test_device();
  if (!device) {
    fmt::print("SKIPPED: {}\n", device.error().message);
    return 0;
  }
  device::CudaBench bench(*device, argc > 1 ? argv[1] : "");
  kernels::bench_rms_norm(bench);
  kernels::bench_paged_attention(bench);
  kernels::bench_decoder_elementwise(bench);
  return 0;
}
