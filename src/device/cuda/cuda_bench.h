// Measures what GPU kernels take, as device events see it, one JSON line per case.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "device/cuda/arena.h"
#include "device/cuda/stream.h"
#include "device/stream.h"

namespace thalweg::device {

[[noreturn]] void end_bench(const Error& error);

/// A bench that cannot go on ends with the reason.
template <typename T>
T require(Result<T> result) {
  if (!result) end_bench(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

struct CudaBenchCase {
  std::string name;            // operation/what/sizes
  std::int64_t num_bytes = 0;  // the fewest that must move: each input read once, each output written once
  std::int64_t num_flops = 0;
  std::int32_t num_sets =
      1;  // of inputs, used in turn; together several times the L2 cache, unless it is to be measured
  std::function<void(Stream& stream, std::int32_t set)> launch;
};

class CudaBench {
 public:
  /// Measures the device's copy bandwidth first: the roof that shares are of. Runs cases whose name begins with
  /// `filter`.
  CudaBench(const CudaDevice& device, std::string filter);

  const CudaDevice& device() const { return device_; }
  /// For a whole name, and for an operation: whether any of its cases may be run.
  bool wants(const std::string& name) const { return name.starts_with(filter_) || filter_.starts_with(name); }

  /// Memory for the inputs of a few cases, filled with bf16 numbers from a normal distribution: zeros run faster than
  /// anything real.
  CudaArena memory(std::size_t num_bytes);

  void run(const CudaBenchCase& bench_case);

 private:
  void measure_copy();
  double median_us(const CudaBenchCase& bench_case);

  CudaDevice device_;
  std::string filter_;
  CudaStream stream_;
  CudaEvent start_;
  CudaEvent end_;
  double copy_bytes_per_s_ = 0.0;
};

}  // namespace thalweg::device
