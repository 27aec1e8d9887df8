#include "kernels/linear/sm90_launch.h"

namespace thalweg::kernels::sm90 {
namespace {

// One warp a unit: the registers of its lanes hold 8 rows x 64 columns.
__global__ void expand_units(const Q4UnitSm90* units, std::int64_t num_units, int num_panels, std::uint32_t* out) {
  const std::int64_t unit = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (unit >= num_units) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PanelRegisters registers;
  expand_unit(units + unit, code_masks(), 0, true, registers);
  const std::int64_t row = unit / num_panels * 8 + lane / 4;
  std::uint32_t* target = out + (row * num_panels + unit % num_panels) * 32 + lane % 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) target[4 * i] = registers[i / 2][2 * (i % 2)];
}

}  // namespace

device::CudaStatus stream_q4(const StreamLaunch& stream) { return choose_stream<LinearSm90Weights::kQ4>(stream, "stream_q4"); }

device::CudaStatus expand_q4(CUstream_st* stream, const Q4UnitSm90* units, std::int64_t num_rows,
                             std::int64_t num_panels, void* out) {
  constexpr int kThreads = 256;
  const std::int64_t num_units = num_rows / 8 * num_panels;
  const auto num_blocks = static_cast<unsigned>((num_units * 32 + kThreads - 1) / kThreads);
  expand_units<<<num_blocks, kThreads, 0, stream>>>(units, num_units, static_cast<int>(num_panels),
                                                    static_cast<std::uint32_t*>(out));
  return device::launched("expand_units");
}

}  // namespace thalweg::kernels::sm90
