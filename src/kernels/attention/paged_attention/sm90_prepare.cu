// One block per token, a warp for some of its heads; lane l has dimensions [l * head_dim / 32, ...). Memory-bound: each
// element is read once and written once.
#include <type_traits>

#include "device/cuda/runtime.h"
#include "kernels/attention/paged_attention/sm90_device.h"

namespace thalweg::kernels::attention {
namespace {

constexpr int kWarps = 8;   // per block
constexpr int kAtOnce = 6;  // heads of a warp: so many loads are in flight

/// What a lane has of a head, as it is stored: one access.
template <int kCount>
using Word = std::conditional_t<kCount == 2, std::uint32_t, std::conditional_t<kCount == 4, uint2, uint4>>;

/// The same as numbers.
template <int kCount>
struct Part {
  float values[kCount];

  __device__ explicit Part(const Word<kCount>& word) {
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&word);
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      values[i * 2] = __low2float(pairs[i]);
      values[i * 2 + 1] = __high2float(pairs[i]);
    }
  }
  __device__ Word<kCount> word() const {
    Word<kCount> result;
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(&result);
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) pairs[i] = __floats2bfloat162_rn(values[i * 2], values[i * 2 + 1]);
    return result;
  }
};

/// kCount floats from a place that is a multiple of so many.
template <int kCount>
__device__ void load_floats(float (&to)[kCount], const float* from) {
  using Chunk = std::conditional_t<kCount == 1, float, std::conditional_t<kCount == 2, float2, float4>>;
#pragma unroll
  for (int i = 0; i < static_cast<int>(kCount * sizeof(float) / sizeof(Chunk)); ++i) {
    reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
  }
}

template <int kCount>
__device__ void normalize(Part<kCount>& part, const float* weight, float epsilon, int lane) {
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kCount; ++i) squares = fmaf(part.values[i], part.values[i], squares);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) squares += __shfl_xor_sync(0xffffffffU, squares, distance);
  const float scale = 1.0F / sqrtf(squares / (kCount * 32) + epsilon);
  alignas(16) float weights[kCount];
  load_floats(weights, weight + lane * kCount);
#pragma unroll
  for (int i = 0; i < kCount; ++i) part.values[i] *= scale * weights[i];
}

/// A token's rotation of a lane's dimensions, the same for all of its heads: x * cosine + partner * sine.
template <int kCount>
struct Rotation {
  alignas(16) float cosines[kCount];
  alignas(16) float sines[kCount];
  int partner;  // lane
  bool is_interleaved;

  __device__ Rotation(const float* cos_sin, int rope_dim, bool interleaved, int lane) : is_interleaved(interleaved) {
    const int lanes_of_half = rope_dim / 2 / kCount;
    partner = lane < lanes_of_half ? lane + lanes_of_half : lane - lanes_of_half;
    if (lane * kCount >= rope_dim) {
      partner = lane;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        cosines[i] = 1.0F;
        sines[i] = 0.0F;
      }
    } else if (is_interleaved) {
      alignas(16) float of_pairs[2][kCount / 2];
      load_floats(of_pairs[0], cos_sin + lane * kCount / 2);
      load_floats(of_pairs[1], cos_sin + rope_dim / 2 + lane * kCount / 2);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        cosines[i] = of_pairs[0][i / 2];
        sines[i] = i % 2 == 0 ? -of_pairs[1][i / 2] : of_pairs[1][i / 2];
      }
    } else {
      load_floats(cosines, cos_sin + lane % lanes_of_half * kCount);
      load_floats(sines, cos_sin + rope_dim / 2 + lane % lanes_of_half * kCount);
#pragma unroll
      for (float& sine : sines) sine = lane < lanes_of_half ? -sine : sine;
    }
  }

  __device__ void rotate(Part<kCount>& part) const {
    const Part<kCount> before = part;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float across = __shfl_sync(0xffffffffU, before.values[i], partner);
      const float other = is_interleaved ? before.values[i ^ 1] : across;
      part.values[i] = fmaf(before.values[i], cosines[i], other * sines[i]);
    }
  }
};

__device__ __nv_bfloat16* block_of(const PrepareQkvSm90Params& params, std::int32_t row, std::int32_t position) {
  const std::int64_t place = std::int64_t{row} * params.batch.max_blocks_per_row + position / params.cache.block_size;
  return static_cast<__nv_bfloat16*>(params.cache.base) + params.batch.block_tables[place] * params.cache.block_stride;
}

/// `head` counts the heads of keys, then those of values. After the last value of a sequence come its zeros.
template <int kHeadDim>
__device__ void write(const PrepareQkvSm90Params& params, const Word<kHeadDim / 32>& word, __nv_bfloat16* block,
                      std::int32_t head, std::int32_t position, bool is_last, int lane) {
  constexpr int kCount = kHeadDim / 32;
  const PagedKvSm90& cache = params.cache;
  const bool is_value = head >= cache.num_kv_heads;
  __nv_bfloat16* of_head =
      block + kv_head_offset(kHeadDim, cache.block_size, is_value ? head - cache.num_kv_heads : head);
  if (is_value) of_head += cache.block_size * kHeadDim;
  const auto put = [&](std::int32_t token, const Word<kCount>& stored) {
    *reinterpret_cast<Word<kCount>*>(of_head + kv_element(kHeadDim, token, lane * kCount)) = stored;
  };
  const std::int32_t place = position % cache.block_size;
  put(place, word);
  if (!is_value || !is_last) return;
  for (std::int32_t after = place + 1; after % kCopyTokens != 0; ++after) put(after, {});
}

template <int kHeadDim>
__global__ void __launch_bounds__(kWarps * 32) prepare_qkv(const __grid_constant__ PrepareQkvSm90Params params) {
  constexpr int kCount = kHeadDim / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const auto token = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t num_kv_heads = params.cache.num_kv_heads;
  const std::int32_t num_heads = params.num_heads + 2 * num_kv_heads;
  __nv_bfloat16* of_lane = static_cast<__nv_bfloat16*>(params.qkv) + token * params.qkv_stride + lane * kCount;

  Word<kCount> words[kAtOnce];
  const auto load = [&](std::int32_t first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int32_t head = first + i * kWarps;
      if (head < num_heads) words[i] = *reinterpret_cast<const Word<kCount>*>(of_lane + head * kHeadDim);
    }
  };
  load(warp);  // before anything is known about the token: the arrays hold it
  const std::int32_t row = params.token_rows[token];
  if (row < 0) return;
  const Rotation<kCount> rotation(params.cos_sin + std::int64_t{token} * params.rope_dim, params.rope_dim,
                                  params.is_interleaved, lane);
  const std::int32_t context_len = params.batch.context_lens[row];
  const std::int32_t position = context_len - (params.batch.cu_seqlens[row + 1] - token);
  __nv_bfloat16* block = block_of(params, row, position);

  for (std::int32_t first = warp; first < num_heads; first += kWarps * kAtOnce) {
    if (first != warp) load(first);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int32_t head = first + i * kWarps;
      if (head >= num_heads) continue;
      if (head < params.num_heads + num_kv_heads) {
        Part<kCount> part(words[i]);
        const float* norm = head < params.num_heads ? params.q_norm : params.k_norm;
        if (norm != nullptr) normalize(part, norm, params.epsilon, lane);
        rotation.rotate(part);
        words[i] = part.word();
      }
      if (head < params.num_heads) {
        *reinterpret_cast<Word<kCount>*>(of_lane + head * kHeadDim) = words[i];
      } else {
        write<kHeadDim>(params, words[i], block, head - params.num_heads, position, position == context_len - 1, lane);
      }
    }
  }
}

template <int kHeadDim>
void start(CUstream_st* stream, const PrepareQkvSm90Params& params) {
  prepare_qkv<kHeadDim><<<static_cast<unsigned int>(params.batch.num_tokens), kWarps * 32, 0, stream>>>(params);
}

}  // namespace

device::CudaStatus prepare_qkv_sm90(CUstream_st* stream, const PrepareQkvSm90Params& params) {
  if (params.batch.num_tokens == 0) return {};
  switch (params.cache.head_dim) {
    case 64:
      start<64>(stream, params);
      break;
    case 128:
      start<128>(stream, params);
      break;
    default:
      start<256>(stream, params);
  }
  return device::launched("prepare_qkv");
}

}  // namespace thalweg::kernels::attention
