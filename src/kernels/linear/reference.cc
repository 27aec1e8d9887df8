// The numeric contract of linear.h, word by word.
#include <bit>
#include <cmath>

#include "kernels/linear/packed.h"
#include "kernels/linear/packed_row.h"

namespace thalweg::kernels {
namespace {

constexpr float kSmallestMax = 1e-30F;  // below it 127 / max|x| could overflow

void quantize(const float* x, std::int64_t num_cols, std::int8_t* codes, ActivationGroup* groups) {
  for (std::int64_t g = 0; g < num_cols / kGroupCols; ++g, x += kGroupCols, codes += kGroupCols) {
    // As integers, magnitudes order like floats, with infinity and NaN on top.
    std::uint32_t max_bits = 0;
    for (std::int64_t i = 0; i < kGroupCols; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU;
      if (magnitude > max_bits) max_bits = magnitude;
    }
    const float max = std::bit_cast<float>(max_bits);
    const bool finite = std::isfinite(max);
    const bool counts = finite && max >= kSmallestMax;
    const float inverse = counts ? 127.0F / max : 0.0F;
    int sums[2] = {0, 0};
    for (std::int64_t i = 0; i < kGroupCols; ++i) {
      codes[i] = counts ? static_cast<std::int8_t>(std::nearbyint(x[i] * inverse)) : std::int8_t{0};
      sums[i / 16] += codes[i];
    }
    ActivationGroup& group = groups[g];
    group.scale = counts ? max / 127.0F : (finite ? 0.0F : std::nanf(""));
    group.sum = group.scale * static_cast<float>(sums[0] + sums[1]);
    group.offsets[0] = -128 * sums[0];
    group.offsets[1] = -128 * sums[1];
  }
}

float float_product(const Product& product, std::int64_t row, std::int64_t token) {
  const float* x = product.x + token * product.x_stride;
  float y = 0.0F;
  for (std::int64_t k = 0; k < product.part.num_cols; ++k) {
    y = std::fma(read_packed_float(product.part, product.tiles, row, k), x[k], y);
  }
  return y;
}

float quantised_product(const Product& product, std::int64_t row, std::int64_t token) {
  const std::int64_t num_groups = product.part.num_cols / kGroupCols;
  const std::int8_t* codes = product.codes + token * product.part.num_cols;
  const ActivationGroup* groups = product.groups + token * num_groups;
  const bool with_min = has_min(product.part.coding);
  float y = 0.0F;
  for (std::int64_t g = 0; g < num_groups; ++g) {
    const PackedGroup weight = read_packed_group(product.part, product.tiles, row, g);
    int dot = 0;
    for (std::int64_t i = 0; i < kGroupCols; ++i) {
      dot += weight.sub_scales[i / 16] * weight.codes[i] * codes[g * kGroupCols + i];
    }
    y = std::fma(static_cast<float>(dot), groups[g].scale * weight.scale, y);
    if (with_min) y = std::fma(weight.min, groups[g].sum, y);
  }
  return y;
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7.
float exponential(float x) {
  if (std::isnan(x)) return x;
  x = std::fmin(88.0F, std::fmax(-87.0F, x));
  const float n = std::nearbyint(x * 1.44269504F);
  float r = std::fma(n, -0.693359375F, x);  // ln 2 in two pieces, the first exact in 9 bits
  r = std::fma(n, 2.12194440e-4F, r);
  float p = 1.0F / 5040.0F;
  p = std::fma(p, r, 1.0F / 720.0F);
  p = std::fma(p, r, 1.0F / 120.0F);
  p = std::fma(p, r, 1.0F / 24.0F);
  p = std::fma(p, r, 1.0F / 6.0F);
  p = std::fma(p, r, 0.5F);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

float silu(float x) { return x / (1.0F + exponential(-x)); }

// x / 2 (1 + tanh u) = x / (1 + e^(-2u)) with u = sqrt(2 / pi) (x + 0.044715 x^3)
float gelu(float x) {
  const float cubic = std::fma(x * x, 0.044715F * x, x);
  return x / (1.0F + exponential(cubic * -1.59576912F));
}

float product_of(const Product& product, std::int64_t row, std::int64_t token) {
  float y = is_float(product.part.coding) ? float_product(product, row, token) : quantised_product(product, row, token);
  if (product.bias != nullptr) y += product.bias[product.part.first_row + row];
  return y;
}

void store(const Product& product, std::int64_t row, std::int64_t token) {
  float* out = product.out + token * product.out_stride;
  const std::int64_t n = product.part.first_row + row;
  switch (product.epilogue) {
    case Epilogue::kStore:
      out[n] = product_of(product, row, token);
      return;
    case Epilogue::kAccumulate:
      out[n] += product_of(product, row, token);
      return;
    case Epilogue::kSiluMul:
    case Epilogue::kGeluMul:
      if (row % 2 != 0) return;  // done with its gate
      const float gate = product_of(product, row, token);
      const float up = product_of(product, row + 1, token);
      out[n / 2] = (product.epilogue == Epilogue::kSiluMul ? silu(gate) : gelu(gate)) * up;
  }
}

void product(const Product& product, std::int64_t first_tile, std::int64_t last_tile, std::int64_t first_token,
             std::int64_t last_token, std::byte* /*scratch*/) {
  const std::int64_t first_row = first_tile * kTileRows;
  const std::int64_t last_row =
      last_tile * kTileRows < product.part.num_rows ? last_tile * kTileRows : product.part.num_rows;
  for (std::int64_t token = first_token; token < last_token; ++token) {
    for (std::int64_t row = first_row; row < last_row; ++row) store(product, row, token);
  }
}

}  // namespace

const LinearVersion& reference_version() {
  static constexpr LinearVersion kVersion{"reference", quantize, product};
  return kVersion;
}

}  // namespace thalweg::kernels
