// Program side: a kernel of the library is started on a stream.
#pragma once

#include "base/check.h"
#include "device/cuda/stream.h"
#include "device/stream.h"
#include "kernels/cuda_kernels.h"

namespace thalweg::kernels {

/// The stream keeps a failure until it is asked (device::CudaStream::status), so that operations return nothing on
/// every device. `operation` is a literal: it is named when the device breaks.
template <typename Params>
void launch(const device::Stream& stream, const char* operation, device::CudaLaunch<Params>* CudaKernels::*kernel,
            const Params& params) {
  device::CudaStream& cuda = *stream.cuda;
  cuda.note(operation, (cuda.table().kernels->*kernel)(cuda.handle(), params));
}

}  // namespace thalweg::kernels
