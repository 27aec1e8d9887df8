#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope/versions.h"

namespace thalweg::kernels {
namespace {

// Ten microseconds of one thread; less is not worth waking others for.
constexpr std::int64_t kAnglesPerTask = 512;
constexpr std::int64_t kElementsPerTask = 64 * 1024;

template <typename Body>
void for_each_token(device::Stream& stream, std::int64_t num_tokens, std::int64_t tokens_per_task, Body body) {
  if (num_tokens <= tokens_per_task) {
    for (std::int64_t token = 0; token < num_tokens; ++token) body(token);
    return;
  }
  const auto run_task = [&](std::int64_t task, int) {
    const std::int64_t end = std::min(num_tokens, (task + 1) * tokens_per_task);
    for (std::int64_t token = task * tokens_per_task; token < end; ++token) body(token);
  };
  stream.threads->parallel_for((num_tokens + tokens_per_task - 1) / tokens_per_task, run_task);
}

rotation::RopeToken* version_for(device::CpuLevel level, RopePairing pairing) {
  const bool halves = pairing == RopePairing::kHalves;
  if (level >= device::CpuLevel::kAvx2) return halves ? rotation::rope_halves_avx2 : rotation::rope_interleaved_avx2;
  return halves ? rotation::rope_halves_reference : rotation::rope_interleaved_reference;
}

}  // namespace

void rope_table(device::Stream& stream, const RopeFrequencies& frequencies, std::span<const std::int32_t> positions,
                float* cos_sin) {
  const auto num_pairs = static_cast<std::int64_t>(frequencies.inverse.size());
  const std::int64_t tokens_per_task = std::max<std::int64_t>(1, kAnglesPerTask / std::max<std::int64_t>(1, num_pairs));
  for_each_token(stream, static_cast<std::int64_t>(positions.size()), tokens_per_task, [&](std::int64_t token) {
    float* cos = cos_sin + token * 2 * num_pairs;
    float* sin = cos + num_pairs;
    for (std::int64_t i = 0; i < num_pairs; ++i) {
      const double angle = double{frequencies.inverse[i]} * positions[token];
      cos[i] = static_cast<float>(std::cos(angle) * frequencies.magnitude);
      sin[i] = static_cast<float>(std::sin(angle) * frequencies.magnitude);
    }
  });
}

void rope(device::Stream& stream, const RopeParams& params) {
  if (params.num_tokens == 0) return;
  CHECK_EQ(params.rope_dim % 2, 0);
  CHECK_LE(params.rope_dim, params.head_dim);
  rotation::RopeToken* rotate = version_for(stream.cpu_level, params.pairing);
  const std::int64_t elements_per_token = std::max<std::int64_t>(1, std::int64_t{params.num_heads} * params.rope_dim);
  const std::int64_t tokens_per_task = std::max<std::int64_t>(1, kElementsPerTask / elements_per_token);
  for_each_token(stream, params.num_tokens, tokens_per_task, [&](std::int64_t token) {
    const float* cos = params.cos_sin + token * params.rope_dim;
    rotate({.x = params.x + token * params.x_stride,
            .num_heads = params.num_heads,
            .head_dim = params.head_dim,
            .num_pairs = params.rope_dim / 2,
            .cos = cos,
            .sin = cos + params.rope_dim / 2});
  });
}

}  // namespace thalweg::kernels
