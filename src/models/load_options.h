// What whoever loads a model may choose.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/dtype.h"
#include "device/stream.h"
#include "models/model.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models {

struct LoadOptions {
  device::DType kv_dtype = device::DType::kF16;   // kF16, kBF16 or kF32
  std::int32_t block_size = 16;                   // tokens per cache block
  std::function<void(double fraction)> progress;  // may be empty; called on the loading thread
};

/// One per architecture: reads the configuration, checks it, packs the weights.
using LoadFunction = Result<std::unique_ptr<Model>> (*)(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                                        const LoadOptions& options);

}  // namespace thalweg::models
