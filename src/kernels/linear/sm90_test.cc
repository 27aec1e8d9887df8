// The GPU versions against sums in double. Padding of inputs is NaN, outputs are poisoned, and every kernel of a format
// gives the same bits, alone and in a batch.
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
#include "kernels/cuda_launch.h"

namespace thalweg::kernels {
namespace {

constexpr std::byte kPoison{0xFF};  // NaN in bf16, fp32 and e4m3
constexpr std::int64_t kScaleCols = 128;

struct Shape {
  std::int64_t num_tokens;
  std::int64_t num_rows;
  std::int64_t num_cols;
};

bool is_fp8(LinearSm90Weights weights) {
  return weights == LinearSm90Weights::kFp8 || weights == LinearSm90Weights::kFp8Blocks;
}

std::int64_t divide_up(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

/// A matrix as the device reads it, and its values.
struct Matrix {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [num_rows, num_cols]
};

/// Rows of bf16 or e4m3 with `padding` NaN elements behind each, and `extra_rows` of NaN.
Matrix random_matrix(bool fp8, std::int64_t num_rows, std::int64_t num_cols, std::int64_t padding,
                     std::int64_t extra_rows, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const std::int64_t element_bytes = fp8 ? 1 : 2;
  Matrix matrix;
  matrix.bytes.assign((num_rows + extra_rows) * (num_cols + padding) * element_bytes, kPoison);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t col = 0; col < num_cols; ++col) {
      std::byte* place = matrix.bytes.data() + (row * (num_cols + padding) + col) * element_bytes;
      if (fp8) {
        const std::uint8_t code = device::f8_e4m3_from_float(32.0F * normal(random));
        std::memcpy(place, &code, 1);
        matrix.values.push_back(device::float_from_f8_e4m3(code));
      } else {
        const std::uint16_t code = device::bf16_from_float(normal(random));
        std::memcpy(place, &code, 2);
        matrix.values.push_back(device::float_from_bf16(code));
      }
    }
  }
  return matrix;
}

Matrix random_q4(std::int64_t num_rows, std::int64_t num_cols, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.02F, 0.2F);
  const std::int64_t num_panels = num_cols / 64;
  std::vector<Q4UnitSm90> units(num_rows / 8 * num_panels);
  Matrix matrix;
  matrix.values.resize(num_rows * num_cols);
  for (std::int64_t i = 0; i < std::ssize(units); ++i) {
    for (int row = 0; row < 8; ++row) {
      for (int half = 0; half < 2; ++half) {
        const std::uint16_t scale = device::bf16_from_float(uniform(random));
        const std::uint16_t min = device::bf16_from_float(-8.0F * uniform(random));
        units[i].scale_min[row][half][0] = scale;
        units[i].scale_min[row][half][1] = min;
        for (int col = 0; col < 32; ++col) {
          const std::uint32_t q = random() % 16;
          // As told beside Q4UnitSm90: eights of columns, pairs within, the second of a pair 4 nibbles on.
          units[i].codes[4 * row + col % 8 / 2][half] |= q << (4 * (col / 8 + 4 * (col % 2)));
          const float weight = static_cast<float>(q) * device::float_from_bf16(scale) + device::float_from_bf16(min);
          matrix.values[(i / num_panels * 8 + row) * num_cols + i % num_panels * 64 + 32 * half + col] =
              device::float_from_bf16(device::bf16_from_float(weight));
        }
      }
    }
  }
  matrix.bytes.resize(units.size() * sizeof(Q4UnitSm90));
  std::memcpy(matrix.bytes.data(), units.data(), matrix.bytes.size());
  return matrix;
}

std::vector<float> random_scales(std::int64_t size, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.005F, 0.02F);
  std::vector<float> scales(size);
  for (float& scale : scales) scale = uniform(random);
  return scales;
}

struct Operands {
  Shape shape;
  LinearSm90Weights format;
  std::int64_t x_padding;
  std::int64_t x_scale_stride;
  Matrix x;
  Matrix weight;
  std::vector<float> x_scale;
  std::vector<float> weight_scale;
};

Operands random_operands(LinearSm90Weights format, const Shape& shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  Operands operands = {.shape = shape, .format = format, .x_padding = is_fp8(format) ? 16 : 8};
  const auto [num_tokens, num_rows, num_cols] = shape;
  operands.x = random_matrix(is_fp8(format), num_tokens, num_cols, operands.x_padding, 2, random);
  operands.weight = format == LinearSm90Weights::kQ4 ? random_q4(num_rows, num_cols, random)
                                                     : random_matrix(is_fp8(format), num_rows, num_cols, 0, 8, random);
  const bool blocks = format == LinearSm90Weights::kFp8Blocks;
  operands.x_scale_stride = blocks ? divide_up(num_tokens + 1, 4) * 4 : 0;
  const std::int64_t num_blocks = num_cols / kScaleCols;
  operands.x_scale = random_scales(blocks ? num_blocks * operands.x_scale_stride : 1, random);
  operands.weight_scale = random_scales(blocks ? divide_up(num_rows, kScaleCols) * num_blocks : 1, random);
  return operands;
}

/// x * W^T, [num_tokens, num_rows].
std::vector<double> expected_product(const Operands& operands) {
  const auto [num_tokens, num_rows, num_cols] = operands.shape;
  std::vector<double> out(num_tokens * num_rows);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const float* x = operands.x.values.data() + token * num_cols;
      const float* w = operands.weight.values.data() + row * num_cols;
      double sum = 0.0;
      for (std::int64_t first = 0; first < num_cols; first += 64) {
        double part = 0.0;
        for (std::int64_t col = first; col < first + 64; ++col) part += double{x[col]} * w[col];
        double scale = is_fp8(operands.format) ? double{operands.x_scale[0]} * operands.weight_scale[0] : 1.0;
        if (operands.format == LinearSm90Weights::kFp8Blocks) {
          const std::int64_t block = first / kScaleCols;
          scale = double{operands.x_scale[block * operands.x_scale_stride + token]} *
                  operands.weight_scale[row / kScaleCols * (num_cols / kScaleCols) + block];
        }
        sum += part * scale;
      }
      out[token * num_rows + row] = sum;
    }
  }
  return out;
}

struct Form {
  Epilogue epilogue;
  bool out_is_f32;
};

class LinearSm90Test : public testing::TestWithParam<LinearSm90Weights> {
 protected:
  LinearSm90Test() {
    EXPECT_TRUE(arena_.grow(kArenaBytes));
    out_ = arena_.take(kOutBytes);
  }

  template <typename T>
  T* put(const std::vector<T>& values) {
    std::byte* place = arena_.take(values.size() * sizeof(T));
    stream_.copy(place, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(place);
  }

  LinearSm90Params put(const Operands& operands) {
    const auto [num_tokens, num_rows, num_cols] = operands.shape;
    LinearSm90Params params;
    params.weights = operands.format;
    params.x = put(operands.x.bytes);
    params.x_stride = num_cols + operands.x_padding;
    params.x_scale = put(operands.x_scale);
    params.x_scale_stride = operands.x_scale_stride;
    params.num_tokens = num_tokens;
    params.weight = put(operands.weight.bytes);
    params.weight_scale = put(operands.weight_scale);
    params.num_rows = num_rows;
    params.num_cols = num_cols;
    if (operands.format == LinearSm90Weights::kQ4) params.scratch = arena_.take(num_rows * num_cols * 2);
    params.num_multiprocessors = device_.properties().num_multiprocessors;
    return params;
  }

  /// Runs it on a copy of `before`.
  std::vector<std::byte> run(LinearSm90Params params, const std::vector<std::byte>& before) {
    params.out = out_;
    CHECK(before.size() <= kOutBytes);
    stream_.copy(out_, before.data(), before.size());
    launch(on_gpu_, "linear", &CudaKernels::linear, params);
    std::vector<std::byte> after(before.size());
    stream_.copy(after.data(), out_, after.size());
    EXPECT_TRUE(stream_.synchronize());
    return after;
  }

  static constexpr std::size_t kArenaBytes = std::size_t{256} << 20;
  static constexpr std::size_t kOutBytes = std::size_t{64} << 20;
  device::CudaDevice device_ = device::test_device();
  device::CudaStream stream_ = device::CudaStream::create(device_).value();
  device::CudaArena arena_ = device::CudaArena::reserve(device_, kArenaBytes).value();
  device::Stream on_gpu_{.kind = device::DeviceKind::kCuda, .cuda = &stream_};
  std::byte* out_ = nullptr;
};

std::vector<LinearSm90Kernel> kernels_for(std::int64_t num_tokens) {
  std::vector<LinearSm90Kernel> kernels = {LinearSm90Kernel::kTile256, LinearSm90Kernel::kTile128,
                                           LinearSm90Kernel::kTile64};
  if (num_tokens <= 64) kernels.push_back(LinearSm90Kernel::kStream);
  return kernels;
}

float element(const std::vector<std::byte>& bytes, std::int64_t index, bool is_f32) {
  float value = 0.0F;
  if (is_f32) {
    std::memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
  }
  std::uint16_t code = 0;
  std::memcpy(&code, bytes.data() + 2 * index, 2);
  return device::float_from_bf16(code);
}

constexpr float kResidual = 0.75F;  // exact in bf16

std::vector<std::byte> poisoned_out(const Form& form, std::int64_t num_rows, std::int64_t num_cols,
                                    std::int64_t stride) {
  std::vector<std::byte> out((num_rows + 2) * stride * (form.out_is_f32 ? 4 : 2), kPoison);
  if (form.epilogue != Epilogue::kAccumulate) return out;
  const std::uint16_t code = device::bf16_from_float(kResidual);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t col = 0; col < num_cols; ++col) {
      std::byte* place = out.data() + (row * stride + col) * (form.out_is_f32 ? 4 : 2);
      std::memcpy(place, form.out_is_f32 ? static_cast<const void*>(&kResidual) : &code, form.out_is_f32 ? 4 : 2);
    }
  }
  return out;
}

double finish(const Form& form, const double* row, std::int64_t col) {
  if (form.epilogue == Epilogue::kAccumulate) return row[col] + kResidual;
  if (form.epilogue != Epilogue::kSiluMul) return row[col];
  return row[2 * col] / (1.0 + std::exp(-row[2 * col])) * row[2 * col + 1];
}

TEST_P(LinearSm90Test, FollowsTheFormulaInEveryKernel) {
  const std::int64_t unit = is_fp8(GetParam()) ? 128 : 64;
  for (const Shape& shape : {Shape{1, 8, unit}, Shape{5, 136, 3 * unit}, Shape{64, 264, 17 * unit},
                             Shape{131, 528, 5 * unit}, Shape{9, 4104, 4 * unit}, Shape{33, 2064, 9 * unit}}) {
    const Operands operands = random_operands(GetParam(), shape, 1);
    const std::vector<double> product = expected_product(operands);
    const LinearSm90Params common = put(operands);
    for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAccumulate, Epilogue::kSiluMul}) {
      for (const bool out_is_f32 : {false, true}) {
        const Form form = {epilogue, out_is_f32};
        const std::int64_t num_cols = epilogue == Epilogue::kSiluMul ? shape.num_rows / 2 : shape.num_rows;
        const std::int64_t stride = num_cols + 12 - num_cols % 8;
        const std::int64_t aligned_stride = divide_up(stride, 8) * 8;
        const std::vector<std::byte> before = poisoned_out(form, shape.num_tokens, num_cols, aligned_stride);
        std::vector<std::byte> first;
        for (const LinearSm90Kernel kernel : kernels_for(shape.num_tokens)) {
          SCOPED_TRACE(testing::Message() << shape.num_tokens << " x " << shape.num_rows << " x " << shape.num_cols
                                          << " epilogue " << static_cast<int>(epilogue) << " f32 " << out_is_f32
                                          << " kernel " << static_cast<int>(kernel));
          LinearSm90Params params = common;
          params.out_stride = aligned_stride;
          params.out_is_f32 = out_is_f32;
          params.epilogue = epilogue;
          params.kernel = kernel;
          const std::vector<std::byte> got = run(params, before);
          if (!first.empty()) {
            ASSERT_EQ(got, first);
            continue;
          }
          first = got;
          double error = 0.0;
          double norm = 0.0;
          for (std::int64_t i = 0; i < (shape.num_tokens + 2) * aligned_stride; ++i) {
            const std::int64_t token = i / aligned_stride;
            const std::int64_t col = i % aligned_stride;
            if (token >= shape.num_tokens || col >= num_cols) {
              const std::int64_t size = out_is_f32 ? 4 : 2;
              ASSERT_EQ(std::memcmp(got.data() + i * size, before.data() + i * size, size), 0) << token << ", " << col;
              continue;
            }
            const double expected = finish(form, product.data() + token * shape.num_rows, col);
            const double difference = element(got, i, out_is_f32) - expected;
            error += difference * difference;
            norm += expected * expected;
          }
          // bf16 keeps 8 bits, fp32 sums of bf16 products 24; of fp8 products the tensor core keeps about 13.
          const double tolerance = !out_is_f32 ? 3e-3 : is_fp8(GetParam()) ? 5e-4 : 2e-6;
          ASSERT_LT(std::sqrt(error / norm), tolerance);
        }
      }
    }
  }
}

TEST_P(LinearSm90Test, ATokenAloneAndInABatchGivesTheSameBits) {
  const Shape shape = {300, 1544, 1024};
  const Operands operands = random_operands(GetParam(), shape, 2);
  LinearSm90Params params = put(operands);
  params.out_stride = shape.num_rows;
  params.out_is_f32 = true;
  const std::int64_t row_bytes = shape.num_rows * 4;
  const std::vector<std::byte> batch = run(params, std::vector<std::byte>(shape.num_tokens * row_bytes, kPoison));
  for (const std::int64_t num_tokens : {1, 7, 8, 9, 20, 33, 64, 65, 129}) {
    params.num_tokens = num_tokens;
    const std::vector<std::byte> part = run(params, std::vector<std::byte>(num_tokens * row_bytes, kPoison));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), batch.begin())) << num_tokens;
  }
}

TEST_P(LinearSm90Test, KernelsThatStartEarlyWaitForEachOther) {
  // Each product reads what the one before it has written.
  if (is_fp8(GetParam())) GTEST_SKIP() << "needs activations of the output's type";
  const Shape shape = {4, 1024, 1024};
  const Operands operands = random_operands(GetParam(), shape, 3);
  LinearSm90Params params = put(operands);
  params.out_stride = shape.num_rows;
  std::vector<std::byte> x = operands.x.bytes;
  const auto chain = [&](bool starts_early) {
    std::byte* first = arena_.take(shape.num_tokens * shape.num_rows * 2);
    std::byte* second = arena_.take(shape.num_tokens * shape.num_rows * 2);
    LinearSm90Params step = params;
    step.starts_early = starts_early;
    step.out = first;
    for (int i = 0; i < 4; ++i) {  // growing by about 32 each time, far from bf16's limits
      launch(on_gpu_, "linear", &CudaKernels::linear, step);
      step.x = step.out;
      step.x_stride = shape.num_rows;
      step.out = step.out == first ? second : first;
    }
    std::vector<std::byte> after(shape.num_tokens * shape.num_rows * 2);
    stream_.copy(after.data(), step.x, after.size());
    EXPECT_TRUE(stream_.synchronize());
    return after;
  };
  EXPECT_EQ(chain(true), chain(false));
}

TEST_P(LinearSm90Test, NoTokensLaunchNothing) {
  launch(on_gpu_, "linear", &CudaKernels::linear, LinearSm90Params{});
  EXPECT_TRUE(stream_.synchronize());
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearSm90Test,
                         testing::Values(LinearSm90Weights::kBF16, LinearSm90Weights::kFp8,
                                         LinearSm90Weights::kFp8Blocks, LinearSm90Weights::kQ4));

}  // namespace
}  // namespace thalweg::kernels
