// The format of cache rows that hold plain floats.
#pragma once

#include "device/dtype.h"
#include "kernels/quant/quant.h"

namespace thalweg::models {

/// `dtype`: LoadOptions::kv_dtype.
inline kernels::QuantFormat plain_format(device::DType dtype) {
  if (dtype == device::DType::kF32) return kernels::QuantFormat::kF32;
  return dtype == device::DType::kF16 ? kernels::QuantFormat::kF16 : kernels::QuantFormat::kBF16;
}

}  // namespace thalweg::models
