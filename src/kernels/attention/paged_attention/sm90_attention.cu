#include "kernels/attention/paged_attention/sm90_start.h"

namespace thalweg::kernels::attention {

device::CudaStatus paged_attention_sm90(CUstream_st* stream, const PagedAttentionSm90Params& params) {
  if (params.max_few_queries > 0) {
    const device::CudaStatus status = attend_partitions_sm90(stream, params);
    if (status.failure != device::CudaFailure::kNone) return status;
  }
  return params.has_tiles ? attend_tiles_sm90(stream, params) : device::CudaStatus{};
}

}  // namespace thalweg::kernels::attention
