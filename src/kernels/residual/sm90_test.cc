// The GPU versions against the formulas in double, with poisoned outputs.
#include <gtest/gtest.h>

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

class ResidualSm90Test : public testing::Test {
 protected:
  ResidualSm90Test() { EXPECT_TRUE(arena_.grow(kBytes)); }

  template <typename T>
  T* put(const std::vector<T>& values) {
    std::byte* there = arena_.take(values.size() * sizeof(T));
    stream_.copy(there, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(there);
  }
  template <typename T>
  T* poisoned(std::int64_t count) {
    std::byte* there = arena_.take(count * sizeof(T));
    stream_.fill(there, 0xff, count * sizeof(T));
    return reinterpret_cast<T*>(there);
  }
  template <typename T>
  std::vector<T> get(const T* from, std::int64_t count) {
    std::vector<T> values(count);
    stream_.copy(values.data(), from, count * sizeof(T));
    EXPECT_TRUE(stream_.synchronize());
    return values;
  }
  std::vector<float> normal_values(std::int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  std::vector<std::uint16_t> normal_bf16(std::int64_t count) {
    std::vector<std::uint16_t> values;
    for (const float value : normal_values(count)) values.push_back(device::bf16_from_float(value));
    return values;
  }

  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::mt19937 random_{1};
  device::CudaDevice device_ = device::test_device();
  device::CudaStream stream_ = device::CudaStream::create(device_).value();
  device::CudaArena arena_ = device::CudaArena::reserve(device_, kBytes).value();
};

TEST_F(ResidualSm90Test, AddsAndNormalisesEachRowWhateverTheOthers) {
  constexpr std::int64_t kRows = 5;
  for (const std::int64_t num_cols : {8, 576, 2048, 4096, 5120, 7168, 16384}) {
    SCOPED_TRACE(num_cols);
    const std::vector<float> residual = normal_values(kRows * num_cols);
    const std::vector<float> weight = normal_values(num_cols);
    const std::vector<std::uint16_t> x = normal_bf16(kRows * num_cols);
    AddRmsNormSm90Params params{.residual = put(residual),
                                .x = put(x),
                                .weight = put(weight),
                                .epsilon = 1e-5F,
                                .num_rows = kRows,
                                .num_cols = num_cols,
                                .out = poisoned<std::uint16_t>(kRows * num_cols)};
    const auto run = [&] {
      stream_.note("add_rms_norm", stream_.table().kernels->add_rms_norm(stream_.handle(), params));
      return get(static_cast<const std::uint16_t*>(params.out), params.num_rows * num_cols);
    };
    const std::vector<std::uint16_t> out = run();
    const std::vector<float> sums = get(params.residual, kRows * num_cols);
    for (std::int64_t row = 0; row < kRows; ++row) {
      double squares = 0.0;
      for (std::int64_t i = row * num_cols; i < (row + 1) * num_cols; ++i) {
        ASSERT_EQ(sums[i], residual[i] + device::float_from_bf16(x[i]));
        squares += double{sums[i]} * sums[i];
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(num_cols) + 1e-5);
      for (std::int64_t i = row * num_cols; i < (row + 1) * num_cols; ++i) {
        const double expected = sums[i] * scale * weight[i % num_cols];
        ASSERT_NEAR(device::float_from_bf16(out[i]), expected, 0x1p-8 * (1e-3 + std::abs(expected)));
      }
    }
    // The last row alone, with nothing to add.
    params.residual += (kRows - 1) * num_cols;
    params.x = nullptr;
    params.num_rows = 1;
    EXPECT_EQ(run(), std::vector(out.end() - num_cols, out.end()));
  }
}

TEST_F(ResidualSm90Test, EmbedsIdsAndZerosForIdsThatAreNone) {
  for (const std::int64_t num_cols : {8, 2048, 4104}) {
    const std::vector<std::uint16_t> table = normal_bf16(5 * num_cols);
    const std::vector<std::int32_t> ids = {2, 0, -1, 4, 5, 1};
    auto* out = poisoned<float>(6 * num_cols);
    const EmbedSm90Params params{.table = put(table),
                                 .ids = put(ids),
                                 .num_ids = 5,
                                 .num_tokens = 6,
                                 .num_cols = num_cols,
                                 .scale = 2.0F,
                                 .out = out};
    stream_.note("embed", stream_.table().kernels->embed(stream_.handle(), params));
    const std::vector<float> got = get(out, 6 * num_cols);
    for (std::int64_t i = 0; i < 6 * num_cols; ++i) {
      const std::int32_t id = ids[i / num_cols];
      const bool is_known = id >= 0 && id < 5;
      ASSERT_EQ(got[i], is_known ? 2.0F * device::float_from_bf16(table[id * num_cols + i % num_cols]) : 0.0F);
    }
  }
}

}  // namespace
}  // namespace thalweg::kernels
