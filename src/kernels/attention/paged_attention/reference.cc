// The definition: softmax(scale * q k^T) v over the visible keys of one query and one head, all sums in double.
#include "kernels/attention/paged_attention/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/paged_attention/element.h"
#include "kernels/attention/paged_attention/layout.h"

namespace thalweg::kernels::attention {
namespace {

std::byte* block_of(const SequenceBlocks& blocks, std::int32_t position) {
  return blocks.base + blocks.block_table[position / blocks.block_size] * blocks.block_stride;
}

void attend(const SequenceBlocks& blocks, std::int32_t position, std::int32_t window, std::int32_t kv_head, float scale,
            const float* q, float* out) {
  const std::int32_t first_key = window > 0 ? std::max(0, position - window + 1) : 0;
  std::vector<double> weights;
  for (std::int32_t key = first_key; key <= position; ++key) {
    const std::byte* block = block_of(blocks, key);
    double score = 0.0;
    for (std::int32_t d = 0; d < blocks.head_dim; ++d) {
      const std::int64_t offset = key_offset(blocks, kv_head, key % blocks.block_size, d);
      score += double{q[d]} * load_element(block, blocks.dtype, offset);
    }
    weights.push_back(score * scale);
  }

  const double highest = *std::ranges::max_element(weights);
  double sum = 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - highest);
    sum += weight;
  }

  std::vector<double> result(blocks.head_dim, 0.0);
  for (std::int32_t key = first_key; key <= position; ++key) {
    const std::byte* block = block_of(blocks, key);
    for (std::int32_t d = 0; d < blocks.head_dim; ++d) {
      const std::int64_t offset = value_offset(blocks, kv_head, key % blocks.block_size, d);
      result[d] += weights[key - first_key] * load_element(block, blocks.dtype, offset);
    }
  }
  for (std::int32_t d = 0; d < blocks.head_dim; ++d) out[d] = static_cast<float>(result[d] / sum);
}

}  // namespace

void write_kv_reference(const WriteKvArgs& args) {
  const SequenceBlocks& blocks = args.blocks;
  for (std::int32_t token = 0; token < args.num_tokens; ++token) {
    const std::int32_t position = args.positions[token];
    const std::int32_t place = position % blocks.block_size;
    std::byte* block = block_of(blocks, position);
    for (std::int32_t head = 0; head < blocks.num_kv_heads; ++head) {
      const float* k = args.k + token * args.k_stride + static_cast<std::int64_t>(head) * blocks.head_dim;
      const float* v = args.v + token * args.v_stride + static_cast<std::int64_t>(head) * blocks.head_dim;
      for (std::int32_t d = 0; d < blocks.head_dim; ++d) {
        store_element(block, blocks.dtype, key_offset(blocks, head, place, d), k[d]);
        store_element(block, blocks.dtype, value_offset(blocks, head, place, d), v[d]);
      }
    }
  }
}

void attend_reference(const PagedAttentionParams& params, const SequenceBlocks& blocks, std::int32_t token) {
  const std::int32_t group = params.num_heads / blocks.num_kv_heads;
  for (std::int32_t head = 0; head < params.num_heads; ++head) {
    const std::int64_t offset = static_cast<std::int64_t>(head) * blocks.head_dim;
    attend(blocks, params.batch.positions[token], params.window, head / group, params.scale,
           params.q + token * params.q_stride + offset, params.out + token * params.out_stride + offset);
  }
}

}  // namespace thalweg::kernels::attention
