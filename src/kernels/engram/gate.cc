#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "device/float_types.h"
#include "kernels/engram/engram.h"
#include "kernels/for_each_row.h"

namespace thalweg::kernels {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr float kSmallestProduct = 1e-6F;

/// Channel c adds to lane c % kLanes, so that the order of a sum is fixed by the number of channels.
struct LaneSums {
  float lanes[kLanes] = {};

  float total() const {
    float sum = 0.0F;
    for (const float lane : lanes) sum += lane;
    return sum;
  }
};

struct GateInputs {
  const float* hidden;  // all [size]
  const float* key;
  const float* q_weight;
  const float* k_weight;
  std::int64_t size;
};

/// sigmoid(signed square root of the product of hidden and key, both normalised).
float gate_of(const GateInputs& in, float norm_epsilon) {
  LaneSums product;
  LaneSums hidden_squares;
  LaneSums key_squares;
  const auto add = [&](std::int64_t c, std::int64_t lane) {
    const float hidden = in.hidden[c];
    const float key = in.key[c];
    product.lanes[lane] += hidden * (in.q_weight[c] * in.k_weight[c]) * key;
    hidden_squares.lanes[lane] += hidden * hidden;
    key_squares.lanes[lane] += key * key;
  };
  std::int64_t c = 0;
  for (; c + kLanes <= in.size; c += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) add(c + lane, lane);
  }
  for (std::int64_t lane = 0; c + lane < in.size; ++lane) add(c + lane, lane);

  const auto size = static_cast<float>(in.size);
  const auto norm = [&](const LaneSums& squares) { return 1.0F / std::sqrt(squares.total() / size + norm_epsilon); };
  const float dot = product.total() * norm(hidden_squares) * norm(key_squares) / std::sqrt(size);
  const float root = std::copysign(std::sqrt(std::max(std::abs(dot), kSmallestProduct)), dot);
  return 1.0F / (1.0F + std::exp(-root));
}

}  // namespace

void engram_gate(device::Stream& stream, const EngramGateParams& params) {
  if (params.num_tokens == 0) return;
  const std::int64_t size = params.shape.hidden_size;
  const std::int32_t num_streams = params.shape.num_streams;
  CHECK_GT(size, 0);
  CHECK(params.dead.empty() || static_cast<std::int64_t>(params.dead.size()) == params.num_tokens);
  for_each_row(stream, params.num_tokens, 4 * num_streams * size, [&](std::int64_t token) {
    const bool dead = !params.dead.empty() && params.dead[token] != 0;
    const float* keys = params.y + token * (num_streams + 1) * size;
    const float* value = keys + num_streams * size;
    for (std::int32_t i = 0; i < num_streams; ++i) {
      float* x = params.x + (token * num_streams + i) * size;
      const GateInputs inputs{.hidden = x,
                              .key = keys + i * size,
                              .q_weight = params.q_weight + i * size,
                              .k_weight = params.k_weight + i * size,
                              .size = size};
      const float gate = dead ? 0.0F : gate_of(inputs, params.shape.norm_epsilon);
      if (params.gate != nullptr) params.gate[token * num_streams + i] = gate;
      for (std::int64_t c = 0; c < size; ++c) {
        const float next = x[c] + gate * value[c];
        x[c] = params.rounds_bf16 ? device::float_from_bf16(device::bf16_from_float(next)) : next;
      }
    }
  });
}

}  // namespace thalweg::kernels
