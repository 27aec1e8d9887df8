// Rows of a decode step and of a prefill chunk; bytes read and written per second.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "device/stream.h"
#include "device/thread_pool.h"
#include "kernels/norm/rms_norm.h"

namespace thalweg::kernels::norm {
namespace {

void norm_rows(benchmark::State& state) {
  device::ThreadPool threads(2);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  const std::int64_t num_rows = state.range(0);
  const std::int64_t num_cols = state.range(1);
  const std::vector<float> x(num_rows * num_cols, 0.5F);
  const std::vector<float> weight(num_cols, 1.5F);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    rms_norm(stream, {x.data(), num_cols, num_rows, num_cols, weight.data(), 1e-6F, out.data(), num_cols});
  }
  state.SetBytesProcessed(state.iterations() * num_rows * num_cols * 8);
}
BENCHMARK(norm_rows)->Name("rms_norm")->ArgsProduct({{1, 32, 512}, {576, 4096}})->UseRealTime();

}  // namespace
}  // namespace thalweg::kernels::norm
