// The GPU version against the formula in double. Padding holds NaN and outputs are poisoned.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "device/cuda/arena.h"
#include "device/cuda/stream.h"
#include "device/cuda/test_device.h"
#include "device/float_types.h"
#include "kernels/norm/rms_norm.h"

namespace thalweg::kernels::norm {
namespace {

using device::DType;

constexpr float kPoison = -7.0F;  // exact in bf16

struct Case {
  DType x_dtype;
  DType out_dtype;
  std::int64_t num_rows;
  std::int64_t num_cols;
  std::int64_t padding;  // elements between rows, on both sides
  bool weighted;
};

/// Elements as a device stores them, and as numbers.
std::vector<std::byte> store(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(device::row_bytes(dtype, static_cast<std::int64_t>(values.size())));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t code = device::bf16_from_float(values[i]);
    if (dtype == DType::kBF16) {
      std::memcpy(bytes.data() + 2 * i, &code, 2);
    } else {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    }
  }
  return bytes;
}

std::vector<float> load(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / device::row_bytes(dtype, 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t code = 0;
    if (dtype == DType::kBF16) {
      std::memcpy(&code, bytes.data() + 2 * i, 2);
      values[i] = device::float_from_bf16(code);
    } else {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    }
  }
  return values;
}

std::vector<float> normal_values(std::int64_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

class RmsNormSm90Test : public testing::Test {
 protected:
  RmsNormSm90Test() { EXPECT_TRUE(arena_.grow(kArenaBytes)); }

  /// At `shift` bytes past a 256-byte boundary.
  template <typename T>
  T* put(const std::vector<T>& values, std::int64_t shift = 0) {
    const std::size_t num_bytes = values.size() * sizeof(T);
    std::byte* place = arena_.take(num_bytes + 64) + shift;
    stream_.copy(place, values.data(), num_bytes);
    return reinterpret_cast<T*>(place);
  }

  std::vector<std::byte> get(const void* from, std::size_t num_bytes) {
    std::vector<std::byte> bytes(num_bytes);
    stream_.copy(bytes.data(), from, num_bytes);
    EXPECT_TRUE(stream_.synchronize());
    return bytes;
  }

  static constexpr std::size_t kArenaBytes = std::size_t{256} << 20;
  device::CudaDevice device_ = device::test_device();
  device::CudaStream stream_ = device::CudaStream::create(device_).value();
  device::CudaArena arena_ = device::CudaArena::reserve(device_, kArenaBytes).value();
  device::Stream on_gpu_{.kind = device::DeviceKind::kCuda, .cuda = &stream_};
};

/// x / sqrt(mean(x^2) + epsilon) * weight of one row.
std::vector<double> expected_row(const float* x, std::int64_t num_cols, const float* weight, double epsilon) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < num_cols; ++i) squares += double{x[i]} * x[i];
  std::vector<double> row(num_cols);
  for (std::int64_t i = 0; i < num_cols; ++i) {
    row[i] = x[i] / std::sqrt(squares / static_cast<double>(num_cols) + epsilon) * (weight ? weight[i] : 1.0);
  }
  return row;
}

TEST_F(RmsNormSm90Test, FollowsTheFormula) {
  std::vector<Case> cases;
  for (const std::int64_t num_cols :
       {1, 7, 8, 64, 128, 255, 256, 257, 576, 2048, 2049, 4096, 7168, 8192, 8200, 20000}) {
    for (const std::int64_t num_rows : {1, 9}) {
      for (const std::int64_t padding : {3, 8}) {  // unaligned and, where num_cols allows it, aligned rows
        for (const bool weighted : {false, true}) {
          cases.push_back({DType::kF32, DType::kF32, num_rows, num_cols, padding, weighted});
          cases.push_back({DType::kF32, DType::kBF16, num_rows, num_cols, padding, weighted});
          cases.push_back({DType::kBF16, DType::kBF16, num_rows, num_cols, padding, weighted});
        }
      }
    }
  }
  for (const Case& test : cases) {
    SCOPED_TRACE(testing::Message() << test.num_rows << " x " << test.num_cols << " + " << test.padding << " "
                                    << device::dtype_name(test.x_dtype) << " " << device::dtype_name(test.out_dtype));
    const std::int64_t stride = test.num_cols + test.padding;
    std::vector<float> filled = normal_values(test.num_rows * stride, 1);
    for (std::int64_t i = 0; i < test.num_rows * stride; ++i) {
      if (i % stride >= test.num_cols) filled[i] = NAN;
    }
    const std::vector<std::byte> x_bytes = store(test.x_dtype, filled);
    const std::vector<float> x = load(test.x_dtype, x_bytes);
    const std::vector<float> weight = normal_values(test.num_cols, 2);
    const std::vector<std::byte> poison = store(test.out_dtype, std::vector<float>(test.num_rows * stride, kPoison));
    std::byte* out = put(poison);
    rms_norm(on_gpu_, {.x = put(x_bytes),
                       .x_stride = stride,
                       .num_rows = test.num_rows,
                       .num_cols = test.num_cols,
                       .weight = test.weighted ? put(weight) : nullptr,
                       .epsilon = 1e-5F,
                       .out = out,
                       .out_stride = stride,
                       .x_dtype = test.x_dtype,
                       .out_dtype = test.out_dtype});
    const std::vector<float> got = load(test.out_dtype, get(out, poison.size()));
    // fp32 sums in another order than double's; bf16 keeps 8 bits.
    const double tolerance = test.out_dtype == DType::kBF16 ? 0x1p-8 : 2e-6;
    for (std::int64_t row = 0; row < test.num_rows; ++row) {
      const std::vector<double> expected =
          expected_row(x.data() + row * stride, test.num_cols, test.weighted ? weight.data() : nullptr, 1e-5F);
      for (std::int64_t i = 0; i < test.num_cols; ++i) {
        ASSERT_NEAR(got[row * stride + i], expected[i], tolerance * (1e-3 + std::abs(expected[i])));
      }
      for (std::int64_t i = test.num_cols; i < stride; ++i) ASSERT_EQ(got[row * stride + i], kPoison);
    }
  }
}

TEST_F(RmsNormSm90Test, ARowAloneInABatchInPlaceAndUnalignedGivesTheSameBits) {
  for (const std::int64_t num_cols : {64, 128, 250, 576, 4096, 7168, 12288}) {
    const std::int64_t num_rows = 40;
    const std::vector<float> x = normal_values(num_rows * num_cols, 3);
    const std::vector<float> weight = normal_values(num_cols, 4);
    float* weight_there = put(weight);
    const RmsNormParams common{.x_stride = num_cols,
                               .num_rows = num_rows,
                               .num_cols = num_cols,
                               .weight = weight_there,
                               .out_stride = num_cols};
    const auto norm = [&](const float* from, float* to, std::int64_t rows) {
      RmsNormParams params = common;
      params.x = from;
      params.out = to;
      params.num_rows = rows;
      rms_norm(on_gpu_, params);
      return get(to, rows * num_cols * sizeof(float));
    };
    float* x_there = put(x);
    float* out = put(std::vector<float>(x.size(), kPoison));
    const std::vector<std::byte> batch = norm(x_there, out, num_rows);
    const auto row_of_batch = [&](std::int64_t row) {
      return std::vector(batch.begin() + row * num_cols * 4, batch.begin() + (row + 1) * num_cols * 4);
    };
    EXPECT_EQ(norm(put(x, 4), put(std::vector<float>(x.size(), kPoison), 8), num_rows), batch);
    for (const std::int64_t row : {0, 17, 39}) EXPECT_EQ(norm(x_there + row * num_cols, out, 1), row_of_batch(row));
    EXPECT_EQ(norm(x_there, x_there, num_rows), batch);
  }
}

TEST_F(RmsNormSm90Test, NormalisesEachHeadAndNothingElse) {
  for (const std::int32_t head_dim : {64, 128, 256, 40}) {
    const std::int64_t num_tokens = 70;
    const std::int32_t num_heads = 5;
    const std::int64_t stride = num_heads * head_dim + 8;
    const std::vector<float> input = normal_values(num_tokens * stride, 6);
    const std::vector<float> weight = normal_values(head_dim, 7);
    float* x = put(input);
    head_rms_norm(on_gpu_, x, stride, num_tokens, num_heads, head_dim, put(weight), 1e-6F);
    const std::vector<float> got = load(DType::kF32, get(x, input.size() * sizeof(float)));
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      for (std::int32_t head = 0; head < num_heads; ++head) {
        const std::int64_t offset = token * stride + head * head_dim;
        const std::vector<double> expected = expected_row(input.data() + offset, head_dim, weight.data(), 1e-6F);
        for (std::int64_t i = 0; i < head_dim; ++i) {
          ASSERT_NEAR(got[offset + i], expected[i], 2e-6 * (1e-3 + std::abs(expected[i])));
        }
      }
      for (std::int64_t i = token * stride + num_heads * head_dim; i < (token + 1) * stride; ++i) {
        ASSERT_EQ(got[i], input[i]);
      }
    }
  }
}

TEST_F(RmsNormSm90Test, AnEmptyBatchLaunchesNothing) {
  rms_norm(on_gpu_, {});
  EXPECT_TRUE(stream_.synchronize());
}

}  // namespace
}  // namespace thalweg::kernels::norm
