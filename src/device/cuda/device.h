// One GPU of this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/table.h"
#include "thalweg/error.h"

namespace thalweg::device {

struct CudaMemory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};

/// A value: copies name the same GPU. `table` outlives it.
class CudaDevice {
 public:
  /// Fails for a GPU that the library has no code for (compute capability other than 9.0). Creates no context.
  static Result<CudaDevice> open(const CudaTable& table, std::int32_t ordinal);

  const CudaTable& table() const { return *table_; }
  std::int32_t ordinal() const { return ordinal_; }
  const CudaProperties& properties() const { return properties_; }
  /// "CUDA device 0 (NVIDIA H200)"
  const std::string& name() const { return name_; }

  /// To be called by each thread that will launch kernels on this device.
  Status make_current() const;
  Result<CudaMemory> memory() const;
  /// Lets this device's kernels and copies use `peer`'s memory.
  Status enable_peer_access(const CudaDevice& peer) const;

  Status check(const CudaStatus& status) const;

 private:
  CudaDevice(const CudaTable& table, std::int32_t ordinal, const CudaProperties& properties);

  const CudaTable* table_;
  std::int32_t ordinal_;
  CudaProperties properties_;
  std::string name_;
};

/// All GPUs that can be used, in CUDA's order (CUDA_VISIBLE_DEVICES hides some). Fails, saying what was found, when
/// there are none.
Result<std::vector<CudaDevice>> open_cuda_devices(const CudaTable& table);

}  // namespace thalweg::device
