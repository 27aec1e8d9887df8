// For tests and benches that need a GPU: the library is linked into those programs.
#pragma once

#include "base/check.h"
#include "device/cuda/device.h"
#include "device/cuda/library.h"
#include "device/cuda/table.h"

namespace thalweg::device {

/// The first GPU, or why there is none. Its context belongs to the calling thread then.
inline Result<CudaDevice> find_test_device() {
  const CudaTable& table = *thalweg_cuda_table();
  if (Status status = check_cuda_driver(table); !status) return std::unexpected(status.error());
  Result<std::vector<CudaDevice>> devices = open_cuda_devices(table);
  if (!devices) return std::unexpected(devices.error());
  if (Status status = devices->front().make_current(); !status) return std::unexpected(status.error());
  return devices->front();
}

/// In tests, which run only where there is one.
inline CudaDevice test_device() {
  Result<CudaDevice> device = find_test_device();
  CHECK(device.has_value());
  return *std::move(device);
}

}  // namespace thalweg::device
