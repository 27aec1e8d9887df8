#include "kernels/quant/quant.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "device/float_types.h"
#include "device/thread_pool.h"

namespace thalweg::kernels {
namespace {

// Ten microseconds or more of one thread; less is not worth waking others for.
constexpr std::int64_t kElementsPerTask = 32 * 1024;

constexpr std::int32_t kSign = std::numeric_limits<std::int32_t>::min();

// What the formats differ in. Divisions by powers of two are exact, so one loop serves all of them.

struct F8Block32 {
  using Code = device::F8E4M3;
  static constexpr std::int64_t kGroup = 32;
  static constexpr std::int64_t kCodeBytes = 32;  // of a group
  static std::uint8_t scale_code(float max) { return device::f8_e8m0_ceil(std::max(max, 1e-4F) * (1.0F / 448.0F)); }
  static float scale(std::uint8_t code) { return device::float_from_f8_e8m0(code); }
  static std::uint8_t encode(float value) { return device::f8_e4m3_from_float(value); }
  static float decode(std::uint8_t code) { return device::float_from_f8_e4m3(code); }
};

struct F4Block32 {
  using Code = device::F4E2M1;
  static constexpr std::int64_t kGroup = 32;
  static constexpr std::int64_t kCodeBytes = 16;
  static std::uint8_t scale_code(float max) { return device::f8_e8m0_ceil(std::max(max, 0x6p-126F) * (1.0F / 6.0F)); }
  static float scale(std::uint8_t code) { return device::float_from_f8_e8m0(code); }
  static std::uint8_t encode(float value) { return device::f4_e2m1_from_float(value); }
  static float decode(std::uint8_t code) { return device::float_from_f4_e2m1(code); }
};

struct F4Block16 {
  using Code = device::F4E2M1;
  static constexpr std::int64_t kGroup = 16;
  static constexpr std::int64_t kCodeBytes = 8;
  static std::uint8_t scale_code(float max) { return device::f8_e4m3_from_float(std::max(max, 0x6p-9F) / 6.0F); }
  static float scale(std::uint8_t code) { return device::float_from_f8_e4m3(code); }
  static std::uint8_t encode(float value) { return device::f4_e2m1_from_float(value); }
  static float decode(std::uint8_t code) { return device::float_from_f4_e2m1(code); }
};

bool is_plain(QuantFormat format) {
  return format == QuantFormat::kF32 || format == QuantFormat::kF16 || format == QuantFormat::kBF16;
}

/// Calls body(Format()) with the constants of a format that has scales.
template <typename Body>
auto with_format(QuantFormat format, Body body) {
  if (format == QuantFormat::kF8Block32) return body(F8Block32());
  if (format == QuantFormat::kF4Block32) return body(F4Block32());
  CHECK(format == QuantFormat::kF4Block16);
  return body(F4Block16());
}

void store_plain(QuantFormat format, const float* x, std::int64_t num_cols, std::byte* out) {
  if (format == QuantFormat::kF32) {
    std::memcpy(out, x, static_cast<std::size_t>(num_cols) * sizeof(float));
    return;
  }
  const bool is_f16 = format == QuantFormat::kF16;
  for (std::int64_t i = 0; i < num_cols; ++i) {
    const std::uint16_t code = is_f16 ? device::f16_from_float(x[i]) : device::bf16_from_float(x[i]);
    std::memcpy(out + 2 * i, &code, sizeof(code));
  }
}

void load_plain(QuantFormat format, const std::byte* row, std::int64_t num_cols, float* out) {
  if (format == QuantFormat::kF32) {
    std::memcpy(out, row, static_cast<std::size_t>(num_cols) * sizeof(float));
    return;
  }
  const bool is_f16 = format == QuantFormat::kF16;
  for (std::int64_t i = 0; i < num_cols; ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, row + 2 * i, sizeof(code));
    out[i] = is_f16 ? device::float_from_f16(code) : device::float_from_bf16(code);
  }
}

void round_plain(QuantFormat format, const float* x, std::int64_t num_cols, float* out) {
  for (std::int64_t i = 0; i < num_cols; ++i) {
    std::byte stored[sizeof(float)];
    store_plain(format, x + i, 1, stored);
    load_plain(format, stored, 1, out + i);
  }
}

/// The largest magnitude of a group; NaN when the group holds one or an infinity. As integers, so that NaN compares.
template <std::int64_t kGroup>
float max_magnitude(const float* x) {
  std::int32_t max = 0;
  for (std::int64_t i = 0; i < kGroup; ++i) max = std::max(max, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return max < 0x7f800000 ? std::bit_cast<float>(max) : std::numeric_limits<float>::quiet_NaN();
}

template <typename Format>
void quantize_group(const float* x, std::byte* codes, std::byte* scale_code) {
  const std::uint8_t scale = Format::scale_code(max_magnitude<Format::kGroup>(x));
  const float divisor = Format::scale(scale);
  std::uint8_t unpacked[Format::kGroup];
  for (std::int64_t i = 0; i < Format::kGroup; ++i) unpacked[i] = Format::encode(x[i] / divisor);
  *scale_code = static_cast<std::byte>(scale);
  if constexpr (Format::kCodeBytes == Format::kGroup) {
    std::copy_n(reinterpret_cast<const std::byte*>(unpacked), Format::kGroup, codes);
  } else {
    for (std::int64_t i = 0; i < Format::kCodeBytes; ++i) {
      codes[i] = static_cast<std::byte>(unpacked[2 * i] | unpacked[2 * i + 1] << 4);
    }
  }
}

template <typename Format>
void dequantize_group(const std::byte* codes, std::byte scale_code, float* out) {
  const float scale = Format::scale(std::to_integer<std::uint8_t>(scale_code));
  std::uint8_t unpacked[Format::kGroup];
  if constexpr (Format::kCodeBytes == Format::kGroup) {
    std::copy_n(codes, Format::kGroup, reinterpret_cast<std::byte*>(unpacked));
  } else {
    for (std::int64_t i = 0; i < Format::kCodeBytes; ++i) {
      unpacked[2 * i] = std::to_integer<std::uint8_t>(codes[i]) & 15;
      unpacked[2 * i + 1] = std::to_integer<std::uint8_t>(codes[i]) >> 4;
    }
  }
  for (std::int64_t i = 0; i < Format::kGroup; ++i) out[i] = Format::decode(unpacked[i]) * scale;
}

template <typename Format>
void fake_quantize_group(const float* x, float* out) {
  const float scale = Format::scale(Format::scale_code(max_magnitude<Format::kGroup>(x)));
  float values[Format::kGroup];  // not `out`, which may be x
  for (std::int64_t i = 0; i < Format::kGroup; ++i) {
    const auto quotient = std::bit_cast<std::int32_t>(x[i] / scale);
    const auto magnitude = std::bit_cast<std::int32_t>(Format::Code::round(quotient & 0x7fffffff));
    values[i] = std::bit_cast<float>(magnitude | (quotient & kSign)) * scale;
  }
  std::copy_n(values, Format::kGroup, out);
}

template <typename Format>
void fake_quantize_row(const float* x, std::int64_t num_cols, float* out) {
  CHECK_EQ(num_cols % Format::kGroup, 0);
  for (std::int64_t i = 0; i < num_cols; i += Format::kGroup) fake_quantize_group<Format>(x + i, out + i);
}

}  // namespace

std::int32_t quant_group(QuantFormat format) {
  if (is_plain(format)) return 1;
  return with_format(format, []<typename Format>(Format) { return static_cast<std::int32_t>(Format::kGroup); });
}

std::int64_t quant_row_bytes(QuantFormat format, std::int64_t num_cols) {
  if (is_plain(format)) return num_cols * (format == QuantFormat::kF32 ? 4 : 2);
  return with_format(format, [&]<typename Format>(Format) {
    CHECK_EQ(num_cols % Format::kGroup, 0);
    return num_cols / Format::kGroup * (Format::kCodeBytes + 1);
  });
}

void quantize_row(QuantFormat format, const float* x, std::int64_t num_cols, std::byte* out) {
  if (is_plain(format)) return store_plain(format, x, num_cols, out);
  with_format(format, [&]<typename Format>(Format) {
    CHECK_EQ(num_cols % Format::kGroup, 0);
    const std::int64_t num_groups = num_cols / Format::kGroup;
    std::byte* scales = out + num_groups * Format::kCodeBytes;
    for (std::int64_t g = 0; g < num_groups; ++g) {
      quantize_group<Format>(x + g * Format::kGroup, out + g * Format::kCodeBytes, scales + g);
    }
  });
}

void dequantize_row(QuantFormat format, const std::byte* row, std::int64_t num_cols, float* out) {
  if (is_plain(format)) return load_plain(format, row, num_cols, out);
  with_format(format, [&]<typename Format>(Format) {
    CHECK_EQ(num_cols % Format::kGroup, 0);
    const std::int64_t num_groups = num_cols / Format::kGroup;
    const std::byte* scales = row + num_groups * Format::kCodeBytes;
    for (std::int64_t g = 0; g < num_groups; ++g) {
      dequantize_group<Format>(row + g * Format::kCodeBytes, scales[g], out + g * Format::kGroup);
    }
  });
}

void fake_quantize_row(QuantFormat format, const float* x, std::int64_t num_cols, float* out) {
  if (is_plain(format)) return round_plain(format, x, num_cols, out);
  with_format(format, [&]<typename Format>(Format) { fake_quantize_row<Format>(x, num_cols, out); });
}

void fake_quantize(device::Stream& stream, QuantFormat format, std::int64_t num_rows, std::int64_t num_cols,
                   const float* x, std::int64_t x_stride, float* out, std::int64_t out_stride) {
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(num_cols, 1));
  const auto run_task = [&](std::int64_t task, int) {
    const std::int64_t end = std::min(num_rows, (task + 1) * rows_per_task);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) {
      fake_quantize_row(format, x + row * x_stride, num_cols, out + row * out_stride);
    }
  };
  if (num_rows <= rows_per_task) {
    run_task(0, 0);
  } else {
    stream.threads->parallel_for((num_rows + rows_per_task - 1) / rows_per_task, run_task);
  }
}

void round_bf16(device::Stream& stream, float* x, std::int64_t count) {
  const auto run_task = [&](std::int64_t task, int) {
    constexpr std::int64_t kBlock = 16;  // a known length, which compilers vectorise
    const auto round = [](float value) { return device::float_from_bf16(device::bf16_from_float(value)); };
    std::int64_t i = task * kElementsPerTask;
    const std::int64_t end = std::min(count, i + kElementsPerTask);
    for (; i + kBlock <= end; i += kBlock) {
      for (std::int64_t j = i; j < i + kBlock; ++j) x[j] = round(x[j]);
    }
    for (; i < end; ++i) x[i] = round(x[i]);
  };
  if (count <= kElementsPerTask) {
    run_task(0, 0);
  } else {
    stream.threads->parallel_for((count + kElementsPerTask - 1) / kElementsPerTask, run_task);
  }
}

}  // namespace thalweg::kernels
