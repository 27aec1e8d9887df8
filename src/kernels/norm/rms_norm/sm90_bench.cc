// Rows of a decode step and of a prefill chunk.
#include <fmt/format.h>

#include "kernels/cuda_benches.h"
#include "kernels/norm/rms_norm.h"

namespace thalweg::kernels {
namespace {

using device::DType;

constexpr std::int64_t kSetsBytes = std::int64_t{1} << 30;  // of all sets together, against 60 MB of L2

void bench_rows(device::CudaBench& bench, const device::CudaArena& memory, DType x_dtype, std::int64_t num_rows,
                std::int64_t num_cols) {
  const std::int64_t x_bytes = num_rows * device::row_bytes(x_dtype, num_cols);
  const std::int64_t out_bytes = num_rows * device::row_bytes(DType::kBF16, num_cols);
  const std::int64_t num_sets = std::min<std::int64_t>(64, kSetsBytes / (x_bytes + out_bytes));
  bench.run({.name = fmt::format("rms_norm/{}/{}x{}", device::dtype_name(x_dtype), num_rows, num_cols),
             .num_bytes = x_bytes + out_bytes + num_cols * 4,
             .num_flops = 4 * num_rows * num_cols,
             .num_sets = static_cast<std::int32_t>(num_sets),
             .launch = [&](device::Stream& stream, std::int32_t set) {
               std::byte* x = memory.data() + set * (x_bytes + out_bytes);
               rms_norm(stream, {.x = x,
                                 .x_stride = num_cols,
                                 .num_rows = num_rows,
                                 .num_cols = num_cols,
                                 .weight = reinterpret_cast<const float*>(memory.data() + kSetsBytes),
                                 .out = x + x_bytes,
                                 .out_stride = num_cols,
                                 .x_dtype = x_dtype,
                                 .out_dtype = DType::kBF16});
             }});
}

}  // namespace

void bench_rms_norm(device::CudaBench& bench) {
  if (!bench.wants("rms_norm")) return;
  const device::CudaArena memory = bench.memory(kSetsBytes + 65536);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const std::int64_t num_rows : {1, 64, 4096}) {
      for (const std::int64_t num_cols : {4096, 7168}) bench_rows(bench, memory, dtype, num_rows, num_cols);
    }
  }
}

}  // namespace thalweg::kernels
