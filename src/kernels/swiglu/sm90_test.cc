// The GPU version against the formula in double; padding holds NaN and outputs are poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device/cuda/arena.h"
#include "device/cuda/stream.h"
#include "device/cuda/test_device.h"
#include "device/float_types.h"
#include "kernels/cuda_launch.h"

namespace thalweg::kernels {
namespace {

constexpr std::uint16_t kPoison = 0xffff;  // NaN

double expected(double gate, double up, double limit) {
  if (limit > 0.0) {
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
  }
  return gate / (1.0 + std::exp(-gate)) * up;
}

TEST(SwigluSm90Test, FollowsTheFormula) {
  const device::CudaDevice device = device::test_device();
  device::CudaStream stream = device::CudaStream::create(device).value();
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (const std::int64_t num_cols : {4, 8, 1000, 4096, 14336}) {
    for (const float limit : {0.0F, 2.0F}) {
      SCOPED_TRACE(testing::Message() << num_cols << " limit " << limit);
      constexpr std::int64_t kRows = 3;
      const std::int64_t in_stride = 2 * num_cols + 8;
      const std::int64_t out_stride = num_cols + 4;
      std::vector<std::uint16_t> gate_up(kRows * in_stride, kPoison);
      for (std::int64_t i = 0; i < kRows * in_stride; ++i) {
        if (i % in_stride < 2 * num_cols) gate_up[i] = device::bf16_from_float(normal(random));
      }
      gate_up[0] = device::bf16_from_float(-200.0F);  // exp overflows
      gate_up[2] = device::bf16_from_float(200.0F);
      std::vector<std::uint16_t> out(kRows * out_stride);
      device::CudaArena arena = device::CudaArena::reserve(device, std::size_t{16} << 20).value();
      ASSERT_TRUE(arena.grow(std::size_t{16} << 20));
      std::byte* gate_up_there = arena.take(gate_up.size() * 2);
      std::byte* out_there = arena.take(out.size() * 2);
      stream.copy(gate_up_there, gate_up.data(), gate_up.size() * 2);
      stream.fill(out_there, 0xff, out.size() * 2);
      const SwigluSm90Params params{.gate_up = gate_up_there,
                                    .gate_up_stride = in_stride,
                                    .out = out_there,
                                    .out_stride = out_stride,
                                    .num_rows = kRows,
                                    .num_cols = num_cols,
                                    .limit = limit};
      stream.note("swiglu", stream.table().kernels->swiglu(stream.handle(), params));
      stream.copy(out.data(), out_there, out.size() * 2);
      ASSERT_TRUE(stream.synchronize());
      for (std::int64_t i = 0; i < kRows * out_stride; ++i) {
        const std::int64_t col = i % out_stride;
        if (col >= num_cols) {
          ASSERT_EQ(out[i], kPoison);
          continue;
        }
        const std::uint16_t* pair = gate_up.data() + i / out_stride * in_stride + 2 * col;
        const double value = expected(device::float_from_bf16(pair[0]), device::float_from_bf16(pair[1]), limit);
        ASSERT_NEAR(device::float_from_bf16(out[i]), value, 0x1p-8 * (1e-3 + std::abs(value))) << i;
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::kernels
