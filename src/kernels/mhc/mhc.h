// Manifold-constrained hyper-connections: a token's residual is several streams, mixed around every sublayer
// (DeepSeek-V4.1 specification, sections 2.3 and 2.4).
//
// Numeric contract: fp32 throughout, sums in an order fixed by the shape; one token's result is independent of all
// others.
#pragma once

#include <cstdint>

#include "device/stream.h"

namespace thalweg::kernels {

/// The mixing weights of one sublayer. S streams of D channels; rows of `fn` are S "pre", S "post", S * S "comb".
struct MhcMix {
  const float* fn = nullptr;     // [S * (S + 2), S * D], columns stream-major
  const float* base = nullptr;   // [S * (S + 2)]
  const float* scale = nullptr;  // [3]: pre, post, comb
};

struct MhcShape {
  std::int32_t num_streams = 4;
  std::int64_t hidden_size = 0;
  float norm_epsilon = 0.0F;             // of the root mean square over all streams
  float epsilon = 1e-6F;                 // of pre and of the Sinkhorn divisions
  std::int32_t num_sinkhorn_steps = 20;  // column steps; one row step less
};

/// x [num_tokens, S, D] -> pre [num_tokens, S], post [num_tokens, S], comb [num_tokens, S (source), S (destination)].
void mhc_mix(device::Stream& stream, const MhcShape& shape, const MhcMix& mix, std::int64_t num_tokens, const float* x,
             float* pre, float* post, float* comb);

/// The weights that collapse the streams before a head of its own (DeepSeek-V4): fn [S, S * D], base [S], scale [1];
/// pre [num_tokens, S] = sigmoid + epsilon.
void mhc_head_mix(device::Stream& stream, const MhcShape& shape, const MhcMix& mix, std::int64_t num_tokens,
                  const float* x, float* pre);

/// out [num_tokens, D] = sum over streams of pre * x, rounded to bf16 if asked.
void mhc_collapse(device::Stream& stream, const MhcShape& shape, std::int64_t num_tokens, const float* x,
                  const float* pre, bool rounds_bf16, float* out);

/// x[k] = post[k] * sublayer + sum over j of comb[j][k] * x[j], in place, rounded to bf16 if asked.
/// sublayer: [num_tokens, D].
void mhc_expand(device::Stream& stream, const MhcShape& shape, std::int64_t num_tokens, const float* sublayer,
                const float* post, const float* comb, bool rounds_bf16, float* x);

}  // namespace thalweg::kernels
