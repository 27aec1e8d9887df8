// What is going to be taken of a GPU's memory, said before anything is taken.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/cuda/device.h"

namespace thalweg::device {

struct PlannedMemory {
  std::string name;  // e.g. "weights"
  std::size_t num_bytes = 0;
};

/// "weights 15.0 GiB, KV cache 100.0 GiB: 115.0 GiB of 139.2 GiB free"
std::string describe_memory(const std::vector<PlannedMemory>& parts, std::size_t free_bytes);

/// kResourceExhausted when the parts together are more than is free: says how much is short, and names each part.
Status check_memory(const CudaDevice& device, const std::vector<PlannedMemory>& parts, std::size_t free_bytes);

}  // namespace thalweg::device
