// Versions of the operation, and running one of them; tests choose for themselves.
#pragma once

#include <span>

#include "device/stream.h"
#include "kernels/attention/paged_attention.h"
#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {

struct Version {
  device::CpuLevel level;
  void (*write_kv)(const WriteKvArgs& args);
  void (*attend)(const AttendArgs& args);
  void (*combine)(const CombineArgs& args);
};

/// In order of preference.
std::span<const Version> versions();

/// Null: the reference.
const Version* choose_version(device::CpuLevel level, const KvLayout& layout, std::int32_t num_heads);

void write_kv_with(const Version* version, device::Stream& stream, const PagedKv& cache, const PagedBatch& batch,
                   const float* k, std::int64_t k_stride, const float* v, std::int64_t v_stride);
void paged_attention_with(const Version* version, device::Stream& stream, const PagedAttentionParams& params);

}  // namespace thalweg::kernels::attention
