// The GPU kernels of libthalweg_cuda.so, and how dispatch reaches them. docs/decisions/0016-cuda.md tells the pattern.
#pragma once

#include "kernels/attention/paged_attention/sm90.h"
#include "kernels/norm/rms_norm/sm90.h"
#include "kernels/residual/sm90.h"
#include "kernels/rope/rope/sm90.h"
#include "kernels/swiglu/sm90.h"

namespace thalweg::kernels {

/// One entry per operation, declared in its folder's sm90.h and defined in its sm90.cu.
struct CudaKernels {
  norm::RmsNormSm90* rms_norm;
  EmbedSm90* embed;
  AddRmsNormSm90* add_rms_norm;
  rotation::RopeTableSm90* rope_table;
  attention::PlanAttentionSm90* plan_attention;
  attention::PrepareQkvSm90* prepare_qkv;
  attention::PagedAttentionSm90* paged_attention;
  SwigluSm90* swiglu;
};

}  // namespace thalweg::kernels
