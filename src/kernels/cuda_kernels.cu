#include "device/cuda/runtime.h"
#include "kernels/cuda_kernels.h"

namespace thalweg {
namespace {

constexpr kernels::CudaKernels kKernels = {
    .rms_norm = kernels::norm::rms_norm_sm90,
    .embed = kernels::embed_sm90,
    .add_rms_norm = kernels::add_rms_norm_sm90,
    .rope_table = kernels::rotation::rope_table_sm90,
    .plan_attention = kernels::attention::plan_attention_sm90,
    .prepare_qkv = kernels::attention::prepare_qkv_sm90,
    .paged_attention = kernels::attention::paged_attention_sm90,
    .swiglu = kernels::swiglu_sm90,
};

device::CudaTable make_table() {
  device::CudaTable table = {.border = THALWEG_CUDA_BORDER, .kernels = &kKernels};
  device::fill_in_devices(table);
  device::fill_in_streams(table);
  device::fill_in_memory(table);
  device::fill_in_graphs(table);
  return table;
}

}  // namespace
}  // namespace thalweg

const thalweg::device::CudaTable* thalweg_cuda_table() {
  static const thalweg::device::CudaTable table = thalweg::make_table();
  return &table;
}
