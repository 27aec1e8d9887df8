// Kernels through the whole device layer: in graphs, and when one of them breaks the device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "device/cuda/arena.h"
#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "device/cuda/test_device.h"
#include "kernels/norm/rms_norm.h"

namespace thalweg::kernels {
namespace {

constexpr std::int64_t kCols = 512;

TEST(CudaLaunch, AGraphReplaysKernelsOnNewInputs) {
  const device::CudaDevice gpu = device::test_device();
  device::CudaStream cuda = device::CudaStream::create(gpu).value();
  device::Stream stream{.kind = device::DeviceKind::kCuda, .cuda = &cuda};
  device::CudaArena arena = device::CudaArena::reserve(gpu, 1 << 20).value();
  ASSERT_TRUE(arena.grow(1 << 20));
  auto* x = reinterpret_cast<float*>(arena.take(kCols * 4));
  auto* out = reinterpret_cast<float*>(arena.take(kCols * 4));
  const device::CudaGraph graph = device::CudaGraph::capture(cuda, [&] {
                                    rms_norm(stream, {.x = x, .num_rows = 1, .num_cols = kCols, .out = out});
                                  }).value();
  for (const float value : {2.0F, -3.0F}) {
    const std::vector<float> row(kCols, value);
    std::vector<float> got(kCols);
    cuda.copy(x, row.data(), kCols * 4);
    graph.launch(cuda);
    cuda.copy(got.data(), out, kCols * 4);
    ASSERT_TRUE(cuda.synchronize());
    for (const float normed : got) ASSERT_NEAR(normed, value / std::abs(value), 1e-6);
  }
}

/// Reads where no memory is, and ends with 3 if that is reported as it must be.
[[noreturn]] void break_the_device() {
  const device::CudaDevice gpu = device::test_device();
  device::CudaStream cuda = device::CudaStream::create(gpu).value();
  device::Stream stream{.kind = device::DeviceKind::kCuda, .cuda = &cuda};
  device::CudaArena arena = device::CudaArena::reserve(gpu, 1 << 20).value();
  rms_norm(stream, {.x = arena.data(), .num_rows = 1, .num_cols = kCols, .out = arena.data()});
  const Status status = cuda.synchronize();
  const bool is_reported = !status && status.error().code == ErrorCode::kUnavailable && !gpu.memory();
  fmt::print(stderr, "{}\n", status ? "nothing failed" : status.error().message);
  std::_Exit(is_reported ? 3 : 4);
}

TEST(CudaLaunchDeathTest, AFaultIsStickyAndNamesWhatWasStarted) {
  EXPECT_EXIT(break_the_device(), testing::ExitedWithCode(3), "rms_norm.*cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace thalweg::kernels
