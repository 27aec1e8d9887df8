#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "device/thread_pool.h"
#include "kernels/linear/cases.h"
#include "kernels/linear/emulation.h"
#include "kernels/linear/linear.h"

namespace thalweg::kernels {
namespace {

using device::CpuLevel;
using device::DType;

constexpr float kPoison = -12345.678F;

class Linear : public ::testing::Test {
 protected:
  device::Stream stream(CpuLevel level) { return {.cpu_level = level, .threads = &threads_}; }
  device::Stream reference() { return stream(CpuLevel::kReference); }

  // Every level this machine can run, the reference aside.
  static std::vector<CpuLevel> fast_levels() {
    std::vector<CpuLevel> levels;
    for (int i = 1; i <= static_cast<int>(device::detect_cpu_level()); ++i) levels.push_back(static_cast<CpuLevel>(i));
    return levels;
  }

  LinearWeight pack(std::span<const StoredMatrix> parts, RowOrder order = RowOrder::kConcatenate,
                    std::span<const std::span<const std::int32_t>> row_maps = {}) {
    device::Stream on = reference();
    Result<LinearWeight> weight = LinearWeight::pack(on, parts, order, row_maps);
    EXPECT_TRUE(weight.has_value()) << weight.error().message;
    return std::move(*weight);
  }
  LinearWeight pack(const StoredMatrix& matrix) { return pack({&matrix, 1}); }

  device::ThreadPool threads_{3, /*pin=*/false};
};

std::vector<float> dequantized(const StoredMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.num_rows * matrix.num_cols));
  dequantize_rows(matrix, 0, matrix.num_rows, values.data());
  return values;
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

// Bits, so that NaN equals NaN and -0 differs from 0.
::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

// One call with poisoned gaps around and between the rows of x and out.
struct Call {
  std::int64_t num_tokens = 1;
  Epilogue epilogue = Epilogue::kStore;
  bool with_bias = false;
};

template <typename Launch>
std::vector<float> run_with(const LinearWeight& weight, const Call& call, std::span<const float> x, Launch&& launch) {
  constexpr std::int64_t kGap = 5;
  const bool gated = call.epilogue == Epilogue::kSiluMul || call.epilogue == Epilogue::kGeluMul;
  const std::int64_t out_cols = gated ? weight.num_rows() / 2 : weight.num_rows();
  const std::int64_t x_stride = weight.num_cols() + kGap;
  const std::int64_t out_stride = out_cols + kGap;
  std::vector<float> spread(static_cast<std::size_t>(call.num_tokens * x_stride),
                            std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t t = 0; t < call.num_tokens; ++t) {
    std::copy_n(x.begin() + t * weight.num_cols(), weight.num_cols(), spread.begin() + t * x_stride);
  }
  const std::vector<float> bias = random_activations(weight.num_rows(), 99);
  const std::vector<float> before = random_activations(call.num_tokens * out_cols, 98);
  std::vector<float> out(static_cast<std::size_t>(call.num_tokens * out_stride), kPoison);
  if (call.epilogue == Epilogue::kAccumulate) {
    for (std::int64_t t = 0; t < call.num_tokens; ++t) {
      std::copy_n(before.begin() + t * out_cols, out_cols, out.begin() + t * out_stride);
    }
  }
  launch(LinearParams{.x = spread.data(),
                      .x_stride = x_stride,
                      .num_tokens = call.num_tokens,
                      .weight = &weight,
                      .bias = call.with_bias ? bias.data() : nullptr,
                      .out = out.data(),
                      .out_stride = out_stride,
                      .epilogue = call.epilogue});
  std::vector<float> result;
  for (std::int64_t t = 0; t < call.num_tokens; ++t) {
    const auto row = out.begin() + t * out_stride;
    result.insert(result.end(), row, row + out_cols);
    for (std::int64_t i = out_cols; i < out_stride; ++i) EXPECT_EQ(row[i], kPoison) << "token " << t;
  }
  return result;
}

std::vector<float> run(device::Stream stream, const LinearWeight& weight, const Call& call, std::span<const float> x) {
  return run_with(weight, call, x, [&stream](const LinearParams& params) { linear(stream, params); });
}

TEST_F(Linear, DequantizesAsRecorded) {
  const std::map<std::string, DType> types{{"Q4_0", DType::kQ4_0}, {"Q4_1", DType::kQ4_1}, {"Q5_0", DType::kQ5_0},
                                           {"Q5_1", DType::kQ5_1}, {"Q8_0", DType::kQ8_0}, {"Q4_K", DType::kQ4_K},
                                           {"Q5_K", DType::kQ5_K}, {"Q6_K", DType::kQ6_K}};
  std::ifstream file("src/kernels/linear/testdata/dequantize_vectors.txt");
  ASSERT_TRUE(file) << "run from the root of the repository";
  std::string name;
  std::string stored_hex;
  std::string weights_hex;
  std::size_t num_types = 0;
  for (; file >> name >> stored_hex >> weights_hex; ++num_types) {
    const std::vector<std::byte> stored = from_hex(stored_hex);
    const std::vector<std::byte> bytes = from_hex(weights_hex);
    std::vector<float> weights(bytes.size() / sizeof(float));
    std::memcpy(weights.data(), bytes.data(), bytes.size());
    const StoredMatrix matrix{types.at(name), stored.data(), 1, static_cast<std::int64_t>(weights.size())};
    const std::vector<float> values = dequantized(matrix);
    for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(values[i], weights[i]) << name << " at " << i;
  }
  EXPECT_EQ(num_types, types.size());
}

TEST_F(Linear, DequantizesFp8WithItsBlockScales) {
  std::vector<std::byte> codes(3 * 300);
  std::iota(reinterpret_cast<std::uint8_t*>(codes.data()), reinterpret_cast<std::uint8_t*>(codes.data()) + 900,
            std::uint8_t{0});
  const float scales[] = {1.0F, 2.0F, 0.5F};
  const std::vector<float> values = dequantized(
      {DType::kF8E4M3, codes.data(), 3, 300, {DType::kF32, std::as_bytes(std::span(scales)).data(), 128, 128}});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = device::float_from_f8_e4m3(static_cast<std::uint8_t>(codes[i])) * scales[i % 300 / 128];
    if (std::isnan(expected)) continue;
    ASSERT_EQ(values[i], expected) << i;
  }
}

// First bytes of DeepSeek-V4.1-Flash's layers.0.attn.wkv and layers.0.ffn.experts.0.w1, and what they stand for
// (DeepSeek-V4.1 specification, sections 6.4 and 6.5).
TEST_F(Linear, DequantizesBytesOfAReleasedCheckpoint) {
  const std::vector<std::byte> fp8 = from_hex("d871f2797069f0e5");
  const std::vector<std::byte> fp8_scale = from_hex("73");
  EXPECT_THAT(dequantized({DType::kF8E4M3, fp8.data(), 1, 8, {DType::kF8E8M0, fp8_scale.data(), 32, 32}}),
              testing::ElementsAre(-0.00390625F, 0.03515625F, -0.0390625F, 0.0703125F, 0.03125F, 0.017578125F,
                                   -0.03125F, -0.0126953125F));
  const std::vector<std::byte> fp4 = from_hex("a0a8ec4aadaf42aa");
  const std::vector<std::byte> fp4_scale = from_hex("78");
  EXPECT_THAT(dequantized({DType::kF4E2M1, fp4.data(), 1, 16, {DType::kF8E8M0, fp4_scale.data(), 1, 32}}),
              testing::ElementsAre(0.0F, -0.0078125F, 0.0F, -0.0078125F, -0.015625F, -0.03125F, -0.0078125F, 0.015625F,
                                   -0.0234375F, -0.0078125F, -0.046875F, -0.0078125F, 0.0078125F, 0.015625F,
                                   -0.0078125F, -0.0078125F));
}

// FP8 and FP4 in blocks of any shape, the last ones cut; powers of two as scales make bf16 exact.
TEST_F(Linear, PacksScaledBlocksExactly) {
  struct Case {
    DType dtype;
    std::int64_t block_rows;
    std::int64_t block_cols;
  };
  constexpr std::int64_t kRows = 35;
  constexpr std::int64_t kCols = 70;
  for (const auto& [dtype, block_rows, block_cols] :
       {Case{DType::kF8E4M3, 32, 32}, Case{DType::kF8E4M3, 16, 128}, Case{DType::kF4E2M1, 1, 32}}) {
    std::mt19937 random(3);
    const std::int64_t blocks_per_row = (kCols + block_cols - 1) / block_cols;
    std::vector<std::byte> scales(static_cast<std::size_t>((kRows + block_rows - 1) / block_rows * blocks_per_row));
    for (std::byte& scale : scales) scale = static_cast<std::byte>(100 + random() % 50);
    std::vector<std::byte> bytes(static_cast<std::size_t>(kRows * device::row_bytes(dtype, kCols)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 2 * 0x80 + random() % 0x7f);  // no NaN
    const StoredMatrix matrix{
        dtype, bytes.data(), kRows, kCols, {DType::kF8E8M0, scales.data(), block_rows, block_cols}};

    std::vector<float> expected;
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      const auto row = i / kCols;
      const auto col = i % kCols;
      const auto scale = scales[static_cast<std::size_t>(row / block_rows * blocks_per_row + col / block_cols)];
      const auto byte = static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(dtype == DType::kF4E2M1 ? i / 2 : i)]);
      const float code = dtype == DType::kF4E2M1 ? device::float_from_f4_e2m1(i % 2 == 0 ? byte & 15 : byte >> 4)
                                                 : device::float_from_f8_e4m3(byte);
      expected.push_back(std::ldexp(code, static_cast<int>(scale) - 127));
    }
    EXPECT_TRUE(same_bits(dequantized(matrix), expected)) << device::dtype_name(dtype);
    const LinearWeight weight = pack(matrix);
    EXPECT_EQ(weight.format(), WeightFormat::kBF16);
    std::vector<float> packed(expected.size());
    for (std::int64_t row = 0; row < kRows; ++row) weight.read_row(row, packed.data() + row * kCols);
    EXPECT_TRUE(same_bits(packed, expected)) << device::dtype_name(dtype);
  }
}

TEST_F(Linear, PackedWeightsEqualTheStored) {
  for (const DType dtype : kWeightTypes) {
    for (const std::int64_t num_rows : {1, 16, 37}) {
      const RandomMatrix matrix = random_matrix(dtype, num_rows, 768, 1);
      const LinearWeight weight = pack(matrix.stored);
      std::vector<float> expected = dequantized(matrix.stored);
      if (dtype == DType::kF8E4M3) {
        for (float& value : expected) value = device::float_from_bf16(device::bf16_from_float(value));
      }
      std::vector<float> packed(expected.size());
      for (std::int64_t row = 0; row < num_rows; ++row) weight.read_row(row, packed.data() + row * 768);
      EXPECT_TRUE(same_bits(packed, expected)) << device::dtype_name(dtype);
    }
  }
}

TEST_F(Linear, PackedSizesStaySmall) {
  const auto bytes_per_weight = [this](DType dtype) {
    const RandomMatrix matrix = random_matrix(dtype, 64, 1024, 1);
    return static_cast<double>(pack(matrix.stored).num_bytes()) / (64 * 1024);
  };
  EXPECT_EQ(bytes_per_weight(DType::kQ4_1), 20.0 / 32);
  EXPECT_EQ(bytes_per_weight(DType::kQ8_0), 34.0 / 32);
  EXPECT_EQ(bytes_per_weight(DType::kQ4_K), 0.5 + 2.0 / 32 + 4.0 / 256);
  EXPECT_EQ(bytes_per_weight(DType::kBF16), 2.0);
}

TEST_F(Linear, ConcatenatesInterleavesAndMapsRows) {
  const RandomMatrix a = random_matrix(DType::kQ4_K, 20, 256, 1);
  const RandomMatrix b = random_matrix(DType::kQ6_K, 20, 256, 2);
  const std::vector<float> rows_a = dequantized(a.stored);
  const std::vector<float> rows_b = dequantized(b.stored);
  std::vector<std::int32_t> map(20);
  for (int i = 0; i < 20; ++i) map[static_cast<std::size_t>(i)] = (i * 7) % 20;
  const std::span<const std::int32_t> maps[] = {{}, map};
  const StoredMatrix parts[] = {a.stored, b.stored};

  const auto expect_row = [](const LinearWeight& weight, std::int64_t row, const float* expected) {
    std::vector<float> values(256);
    weight.read_row(row, values.data());
    EXPECT_TRUE(same_bits(values, {expected, 256})) << "row " << row;
  };
  const LinearWeight concatenated = pack(parts, RowOrder::kConcatenate, maps);
  ASSERT_EQ(concatenated.num_rows(), 40);
  EXPECT_EQ(concatenated.format(), WeightFormat::kQ4);
  for (int i = 0; i < 20; ++i) {
    expect_row(concatenated, i, &rows_a[static_cast<std::size_t>(i) * 256]);
    expect_row(concatenated, 20 + i, &rows_b[static_cast<std::size_t>(map[static_cast<std::size_t>(i)]) * 256]);
  }
  // Formats that cannot share a tile become fp32.
  const LinearWeight interleaved = pack(parts, RowOrder::kInterleave, maps);
  EXPECT_EQ(interleaved.format(), WeightFormat::kF32);
  for (int i = 0; i < 20; ++i) {
    expect_row(interleaved, 2 * i, &rows_a[static_cast<std::size_t>(i) * 256]);
    expect_row(interleaved, 2 * i + 1, &rows_b[static_cast<std::size_t>(map[static_cast<std::size_t>(i)]) * 256]);
  }
  const StoredMatrix alike[] = {a.stored, a.stored};
  EXPECT_EQ(pack(alike, RowOrder::kInterleave).format(), WeightFormat::kQ4);
}

TEST_F(Linear, RefusesWhatDoesNotFit) {
  device::Stream on = reference();
  const RandomMatrix a = random_matrix(DType::kQ4_1, 4, 64, 1);
  const RandomMatrix wide = random_matrix(DType::kQ4_1, 4, 96, 1);
  const RandomMatrix tall = random_matrix(DType::kQ4_1, 5, 64, 1);
  const auto code = [&on](std::vector<StoredMatrix> parts, RowOrder order = RowOrder::kConcatenate,
                          std::vector<std::span<const std::int32_t>> maps = {}) {
    const Result<LinearWeight> weight = LinearWeight::pack(on, parts, order, maps);
    EXPECT_FALSE(weight.has_value());
    return weight.has_value() ? ErrorCode::kInternal : weight.error().code;
  };
  StoredMatrix integers = a.stored;
  integers.dtype = DType::kI32;
  StoredMatrix odd = a.stored;
  odd.num_cols = 48;
  StoredMatrix empty = a.stored;
  empty.num_rows = 0;
  StoredMatrix unscaled = a.stored;
  unscaled.dtype = DType::kF8E4M3;
  StoredMatrix badly_scaled = unscaled;
  badly_scaled.scales = {DType::kF16, a.bytes.data(), 1, 32};
  StoredMatrix half_a_byte = unscaled;
  half_a_byte.dtype = DType::kF4E2M1;
  half_a_byte.num_cols = 63;
  half_a_byte.scales = {DType::kF8E8M0, a.bytes.data(), 1, 32};
  const std::vector<std::int32_t> short_map{0, 1};
  const std::vector<std::int32_t> wild_map{0, 1, 2, 4};
  EXPECT_EQ(code({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({integers}), ErrorCode::kUnimplemented);
  EXPECT_EQ(code({odd}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({empty}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({unscaled}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({badly_scaled}), ErrorCode::kUnimplemented);
  EXPECT_EQ(code({half_a_byte}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({a.stored, wide.stored}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({a.stored, tall.stored}, RowOrder::kInterleave), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({a.stored}, RowOrder::kConcatenate, {short_map}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({a.stored}, RowOrder::kConcatenate, {wild_map}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({a.stored}, RowOrder::kConcatenate, {{}, {}}), ErrorCode::kInvalidArgument);
}

// The reference itself against a plain product in double. Quantised activations cost at most half a step of 1/127 of
// the largest activation of a group.
TEST_F(Linear, ReferenceIsTheProduct) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kRows = 21;
  constexpr std::int64_t kCols = 512;
  const std::vector<float> x = random_activations(kTokens * kCols, 5);
  for (const DType dtype : kWeightTypes) {
    const RandomMatrix matrix = random_matrix(dtype, kRows, kCols, 7);
    const LinearWeight weight = pack(matrix.stored);
    const std::vector<float> y = run(reference(), weight, {.num_tokens = kTokens}, x);
    const bool quantised = weight.format() == WeightFormat::kQ4 || weight.format() == WeightFormat::kQ8;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t n = 0; n < kRows; ++n) {
        std::vector<float> row(kCols);
        weight.read_row(n, row.data());
        double expected = 0;
        double tolerance = 0;
        for (std::int64_t k = 0; k < kCols; ++k) {
          const double w = row[static_cast<std::size_t>(k)];
          const float* group = x.data() + t * kCols + k / 32 * 32;
          float max = 0;
          for (int i = 0; i < 32; ++i) max = std::max(max, std::fabs(group[i]));
          expected += w * x[static_cast<std::size_t>(t * kCols + k)];
          tolerance += std::fabs(w) * (quantised ? max * 0.501 / 127 : max * 1e-6);
        }
        ASSERT_NEAR(y[static_cast<std::size_t>(t * kRows + n)], expected, tolerance) << device::dtype_name(dtype);
      }
    }
  }
}

TEST_F(Linear, EpiloguesAreWhatTheySay) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kCols = 64;
  const RandomMatrix matrix = random_matrix(DType::kF32, kRows, kCols, 3);
  const LinearWeight weight = pack(matrix.stored);
  std::vector<float> x = random_activations(2 * kCols, 4);
  for (std::size_t i = 64; i < 128; ++i) x[i] *= 30.0F;  // gates far from zero on both sides
  const std::vector<float> y = run(reference(), weight, {.num_tokens = 2, .with_bias = true}, x);
  const std::vector<float> silu = run(reference(), weight, {2, Epilogue::kSiluMul, true}, x);
  const std::vector<float> gelu = run(reference(), weight, {2, Epilogue::kGeluMul, true}, x);
  const std::vector<float> sum = run(reference(), weight, {2, Epilogue::kAccumulate, true}, x);
  const std::vector<float> before = random_activations(2 * kRows, 98);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(sum[i], before[i] + y[i]);
  for (std::size_t i = 0; i < silu.size(); ++i) {
    const double gate = y[2 * i];
    const double up = y[2 * i + 1];
    const double expected_silu = gate / (1 + std::exp(-gate)) * up;
    const double inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
    const double expected_gelu = 0.5 * gate * (1 + std::tanh(inner)) * up;
    EXPECT_NEAR(silu[i], expected_silu, 1e-6 * std::fabs(expected_silu) + 1e-30) << gate;
    EXPECT_NEAR(gelu[i], expected_gelu, 2e-6 * std::fabs(expected_gelu) + 1e-5 * std::fabs(gelu[i]) + 1e-12) << gate;
  }
}

struct Shape {
  std::int64_t num_rows;
  std::int64_t num_cols;
};

// Edge shapes for all types; columns in blocks of 256 for K-quants.
std::vector<Shape> shapes_for(DType dtype) {
  const std::int64_t block = device::block_layout(dtype).num_elements;
  if (block == 1) return {{1, 1}, {2, 7}, {16, 33}, {34, 100}, {130, 257}};
  if (block == 32) return {{1, 32}, {2, 64}, {16, 96}, {34, 160}, {130, 576}};
  return {{1, 256}, {2, 512}, {34, 768}, {130, 256}};
}

// Calls expect_equal(weight, call, x, expected) for all types, edge shapes, tails of tokens and epilogues.
template <typename ExpectEqual>
void for_each_case(device::Stream reference, std::span<const std::int64_t> token_counts, ExpectEqual&& expect_equal) {
  std::uint32_t seed = 11;
  for (const DType dtype : kWeightTypes) {
    for (const Shape shape : shapes_for(dtype)) {
      const RandomMatrix matrix = random_matrix(dtype, shape.num_rows, shape.num_cols, ++seed);
      const LinearWeight weight = *LinearWeight::pack(reference, {&matrix.stored, 1});
      for (const std::int64_t num_tokens : token_counts) {
        const std::vector<float> x = random_activations(num_tokens * shape.num_cols, ++seed);
        for (const Epilogue epilogue :
             {Epilogue::kStore, Epilogue::kAccumulate, Epilogue::kSiluMul, Epilogue::kGeluMul}) {
          if (epilogue >= Epilogue::kSiluMul && shape.num_rows % 2 != 0) continue;
          SCOPED_TRACE(testing::Message()
                       << device::dtype_name(dtype) << " [" << shape.num_rows << ", " << shape.num_cols << "] tokens "
                       << num_tokens << " epilogue " << static_cast<int>(epilogue));
          const Call call{num_tokens, epilogue, num_tokens % 2 == 1};
          expect_equal(weight, call, x, run(reference, weight, call, x));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(Linear, EveryVersionEqualsTheReference) {
  const std::int64_t token_counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 17, 33};
  for_each_case(
      reference(), token_counts, [&](const auto& weight, const Call& call, const auto& x, const auto& expected) {
        for (const CpuLevel level : fast_levels()) {
          ASSERT_TRUE(same_bits(run(stream(level), weight, call, x), expected)) << device::cpu_level_name(level);
        }
      });
}

}  // namespace

#if defined(THALWEG_EMULATES_AVX512)
// avx512.cc and avx512_vnni.cc, compiled for AVX2.
const LinearVersion& emulated_avx512_version();
const LinearVersion& emulated_avx512_vnni_version();

namespace {

// One version on its own, in one piece.
void linear_by(const LinearVersion& version, const LinearParams& params) {
  const LinearWeight& weight = *params.weight;
  const std::int64_t num_groups = weight.num_cols() / kGroupCols;
  std::vector<std::int8_t> codes(static_cast<std::size_t>(params.num_tokens * weight.num_cols()));
  std::vector<ActivationGroup> groups(static_cast<std::size_t>(params.num_tokens * num_groups));
  for (std::int64_t t = 0; t < params.num_tokens && weight.format() >= WeightFormat::kQ4; ++t) {
    version.quantize(params.x + t * params.x_stride, weight.num_cols(), codes.data() + t * weight.num_cols(),
                     groups.data() + t * num_groups);
  }
  device::Buffer scratch(static_cast<std::size_t>(product_scratch_bytes(weight.num_cols())));
  for (const PackedPart& part : weight.parts()) {
    const Product product{.part = part,
                          .tiles = weight.storage().data() + part.offset,
                          .x = params.x,
                          .x_stride = params.x_stride,
                          .codes = codes.data(),
                          .groups = groups.data(),
                          .bias = params.bias,
                          .out = params.out,
                          .out_stride = params.out_stride,
                          .epilogue = params.epilogue};
    version.product(product, 0, part.num_tiles, 0, params.num_tokens, scratch.data());
  }
}

TEST_F(Linear, Avx512EqualsTheReferenceWhereItIsEmulated) {
  if (device::detect_cpu_level() < CpuLevel::kAvx2) GTEST_SKIP() << "the emulation needs AVX2";
  const std::int64_t token_counts[] = {1, 2, 3, 5, 11, 27};
  for_each_case(
      reference(), token_counts, [](const auto& weight, const Call& call, const auto& x, const auto& expected) {
        for (const auto version : {emulated_avx512_version, emulated_avx512_vnni_version}) {
          const auto y = run_with(weight, call, x, [&](const LinearParams& params) { linear_by(version(), params); });
          ASSERT_TRUE(same_bits(y, expected)) << version().name;
        }
      });
}

}  // namespace
#endif

namespace {

TEST_F(Linear, FusedPartsOfDifferentTypes) {
  const RandomMatrix q = random_matrix(DType::kQ4_K, 50, 256, 1);
  const RandomMatrix k = random_matrix(DType::kQ6_K, 18, 256, 2);
  const RandomMatrix v = random_matrix(DType::kF16, 33, 256, 3);
  const StoredMatrix parts[] = {q.stored, k.stored, v.stored};
  const LinearWeight fused = pack(parts);
  const std::vector<float> x = random_activations(9 * 256, 4);
  std::vector<CpuLevel> levels = fast_levels();
  levels.push_back(CpuLevel::kReference);
  for (const CpuLevel level : levels) {
    const std::vector<float> y = run(stream(level), fused, {.num_tokens = 9}, x);
    std::int64_t first = 0;
    for (const StoredMatrix& part : parts) {
      const std::vector<float> alone = run(stream(level), pack(part), {.num_tokens = 9}, x);
      for (std::int64_t t = 0; t < 9; ++t) {
        ASSERT_TRUE(same_bits({y.data() + t * 101 + first, static_cast<std::size_t>(part.num_rows)},
                              {alone.data() + t * part.num_rows, static_cast<std::size_t>(part.num_rows)}));
      }
      first += part.num_rows;
    }
  }
}

// A token's result does not depend on its neighbours.
TEST_F(Linear, BatchesAreInvariant) {
  for (const DType dtype : kWeightTypes) {
    constexpr std::int64_t kRows = 200;
    constexpr std::int64_t kCols = 512;
    const RandomMatrix matrix = random_matrix(dtype, kRows, kCols, 21);
    const LinearWeight weight = pack(matrix.stored);
    const std::vector<float> x = random_activations(200 * kCols, 22);
    for (const CpuLevel level : fast_levels()) {
      std::vector<float> alone;
      for (std::int64_t t = 0; t < 200; ++t) {
        const auto y = run(stream(level), weight, {}, std::span(x).subspan(static_cast<std::size_t>(t * kCols), kCols));
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (const std::int64_t num_tokens : {2, 3, 5, 8, 17, 64, 200}) {
        const auto y = run(stream(level), weight, {.num_tokens = num_tokens}, x);
        ASSERT_TRUE(same_bits(y, std::span(alone).first(y.size())))
            << device::cpu_level_name(level) << " " << device::dtype_name(dtype) << " tokens " << num_tokens;
      }
    }
  }
}

// Largest magnitudes of codes on both sides: nothing saturates on the way.
TEST_F(Linear, ExtremeCodesStayExact) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kQ5_1, DType::kQ6_K, DType::kQ4_K}) {
    for (const int byte : {0x00, 0x7f, 0x80, 0xff}) {
      RandomMatrix matrix = random_matrix(dtype, 16, 256, 5);
      const RandomMatrix scales = matrix;
      std::fill(matrix.bytes.begin(), matrix.bytes.end(), static_cast<std::byte>(byte));
      matrix.stored.data = matrix.bytes.data();
      const auto block_bytes = static_cast<std::size_t>(device::block_layout(dtype).num_bytes);
      for (std::size_t at = 0; at < matrix.bytes.size(); at += block_bytes) {
        for (const int field : f16_fields(dtype)) {
          std::copy_n(&scales.bytes[at + static_cast<std::size_t>(field)], 2,
                      &matrix.bytes[at + static_cast<std::size_t>(field)]);
        }
      }
      const LinearWeight weight = pack(matrix.stored);
      for (const float value : {1.0F, -1.0F}) {
        const std::vector<float> x(static_cast<std::size_t>(4 * 256), value);
        const std::vector<float> expected = run(reference(), weight, {.num_tokens = 4}, x);
        for (const CpuLevel level : fast_levels()) {
          EXPECT_TRUE(same_bits(run(stream(level), weight, {.num_tokens = 4}, x), expected))
              << device::dtype_name(dtype) << " byte " << byte;
        }
      }
    }
  }
}

TEST_F(Linear, NotANumberSpoilsItsTokenOnly) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kBF16}) {
    const RandomMatrix matrix = random_matrix(dtype, 32, 64, 5);
    const LinearWeight weight = pack(matrix.stored);
    std::vector<float> x = random_activations(3 * 64, 6);
    const std::vector<float> clean = run(reference(), weight, {.num_tokens = 3}, x);
    x[64 + 40] = std::numeric_limits<float>::quiet_NaN();
    x[128 + 1] = std::numeric_limits<float>::infinity();
    x[3] = 1e-38F;
    std::vector<CpuLevel> levels = fast_levels();
    levels.push_back(CpuLevel::kReference);
    for (const CpuLevel level : levels) {
      const std::vector<float> y = run(stream(level), weight, {.num_tokens = 3}, x);
      for (std::size_t n = 0; n < 32; ++n) {
        EXPECT_TRUE(std::isfinite(y[n]));
        EXPECT_TRUE(std::isnan(y[32 + n]));
        EXPECT_FALSE(std::isfinite(y[64 + n]));
      }
    }
  }
}

TEST_F(Linear, ZeroAndTinyActivationsGiveZero) {
  const RandomMatrix matrix = random_matrix(DType::kQ4_1, 32, 64, 5);
  const LinearWeight weight = pack(matrix.stored);
  std::vector<float> x(64, 0.0F);
  for (std::size_t i = 0; i < 32; ++i) x[i] = 1e-39F;
  std::vector<CpuLevel> levels = fast_levels();
  levels.push_back(CpuLevel::kReference);
  for (const CpuLevel level : levels) EXPECT_THAT(run(stream(level), weight, {}, x), ::testing::Each(0.0F));
}

TEST_F(Linear, EmbeddingReadsScaledRows) {
  const RandomMatrix matrix = random_matrix(DType::kQ8_0, 40, 96, 5);
  const LinearWeight table = pack(matrix.stored);
  const std::vector<float> rows = dequantized(matrix.stored);
  const std::int32_t ids[] = {3, 39, 0, 3};
  for (const float scale : {1.0F, 9.5F}) {
    std::vector<float> out(static_cast<std::size_t>(4 * 96 + 1), kPoison);
    device::Stream on = reference();
    embedding(on, table, ids, scale, out.data());
    for (std::size_t i = 0; i < 4 * 96; ++i) {
      ASSERT_EQ(out[i], rows[static_cast<std::size_t>(ids[i / 96]) * 96 + i % 96] * scale);
    }
    EXPECT_EQ(out.back(), kPoison);
    embedding(on, table, {}, scale, nullptr);
  }
}

TEST_F(Linear, AnyNumberOfThreadsGivesTheSameBits) {
  const RandomMatrix matrix = random_matrix(DType::kQ4_1, 333, 576, 5);
  const LinearWeight weight = pack(matrix.stored);
  const std::vector<float> x = random_activations(50 * 576, 6);
  const CpuLevel level = device::detect_cpu_level();
  const std::vector<float> expected = run(stream(level), weight, {.num_tokens = 50}, x);
  for (const int num_threads : {1, 2, 7}) {
    device::ThreadPool threads(num_threads, /*pin=*/false);
    EXPECT_TRUE(same_bits(run({.cpu_level = level, .threads = &threads}, weight, {.num_tokens = 50}, x), expected));
  }
}

}  // namespace
}  // namespace thalweg::kernels
