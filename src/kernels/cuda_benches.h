// The GPU benches of the kernel folders (sm90_bench.cc), called by tests/cuda/bench_main.cc.
#pragma once

#include "device/cuda/cuda_bench.h"

namespace thalweg::kernels {

void bench_rms_norm(device::CudaBench& bench);
void bench_paged_attention(device::CudaBench& bench);
void bench_decoder_elementwise(device::CudaBench& bench);

}  // namespace thalweg::kernels
