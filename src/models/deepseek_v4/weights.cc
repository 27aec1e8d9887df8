#include "models/deepseek_v4/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>

namespace thalweg::models::deepseek_v4 {
namespace {

/// Stands for numbers that no expert has.
constexpr std::uint64_t kNoExpert = std::numeric_limits<std::int32_t>::max();

class Loader {
 public:
  Loader(layers::WeightReader& reader, const Config& config) : reader_(reader), config_(config) {}

  BlockWeights block(std::int32_t layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    const std::int64_t mix_rows = std::int64_t{config_.mhc.num_streams} * (config_.mhc.num_streams + 2);
    BlockWeights block;
    block.attention_mix = mix(prefix + "hc_attn", mix_rows, 3);
    block.attention_norm = norm(prefix + "attn_norm", config_.attention.hidden_size);
    block.attention = attention(prefix + "attn.", config_.compression[static_cast<std::size_t>(layer)]);
    block.feed_forward_mix = mix(prefix + "hc_ffn", mix_rows, 3);
    block.feed_forward_norm = norm(prefix + "ffn_norm", config_.attention.hidden_size);
    block.experts = experts(prefix + "ffn.", layer < config_.num_hash_layers);
    return block;
  }

  MixWeights mix(const std::string& prefix, std::int64_t rows, std::int64_t num_scales) {
    return {.fn = reader_.floats(prefix + "_fn", {rows, config_.mhc.num_streams * config_.mhc.hidden_size}),
            .base = reader_.floats(prefix + "_base", {rows}),
            .scale = reader_.floats(prefix + "_scale", {num_scales})};
  }

  layers::Norm norm(const std::string& name, std::int64_t size) {
    return layers::load_norm(reader_, name, size, config_.decoder.norm_epsilon);
  }

 private:
  AttentionWeights attention(const std::string& prefix, Compression compression) {
    const AttentionShape& shape = config_.attention;
    AttentionWeights weights;
    weights.q_down = reader_.linear(prefix + "wq_a", shape.q_lora_rank, shape.hidden_size);
    weights.q_norm = norm(prefix + "q_norm", shape.q_lora_rank);
    weights.q_up = reader_.linear(prefix + "wq_b", shape.q_size(), shape.q_lora_rank);
    weights.kv = reader_.linear(prefix + "wkv", shape.head_dim, shape.hidden_size);
    weights.kv_norm = norm(prefix + "kv_norm", shape.head_dim);
    weights.sinks = reader_.floats(prefix + "attn_sink", {shape.num_heads});
    weights.out_a =
        reader_.row_groups(prefix + "wo_a", shape.num_output_groups, shape.output_lora_rank, shape.group_size());
    weights.out_b = reader_.linear(prefix + "wo_b", shape.hidden_size,
                                   std::int64_t{shape.num_output_groups} * shape.output_lora_rank);
    if (compression != Compression::kNone) {
      weights.compressor = compressor(prefix + "compressor.", compression, shape.head_dim);
    }
    if (compression == Compression::kSparse) weights.index = index(prefix + "indexer.");
    return weights;
  }

  CompressorWeights compressor(const std::string& prefix, Compression compression, std::int32_t dim) {
    const bool is_sparse = compression == Compression::kSparse;
    CompressorWeights weights{.ratio = is_sparse ? kSparseRatio : kHeavyRatio, .overlaps = is_sparse, .dim = dim};
    weights.value_gate = reader_.linear({{prefix + "wkv", weights.width()}, {prefix + "wgate", weights.width()}},
                                        config_.attention.hidden_size);
    weights.position_bias = reader_.floats(prefix + "ape", {weights.ratio, weights.width()});
    weights.norm = norm(prefix + "norm", dim);
    return weights;
  }

  IndexWeights index(const std::string& prefix) {
    const IndexShape& shape = config_.index;
    return {.compressor = compressor(prefix + "compressor.", Compression::kSparse, shape.head_dim),
            .q = reader_.linear(prefix + "wq_b", std::int64_t{shape.num_heads} * shape.head_dim,
                                config_.attention.q_lora_rank),
            .head_weights = reader_.linear(prefix + "weights_proj", shape.num_heads, config_.attention.hidden_size)};
  }

  ExpertWeights experts(const std::string& prefix, bool is_hash_layer) {
    const layers::MoeShape& shape = config_.experts;
    ExpertWeights weights;
    weights.gate = reader_.linear(prefix + "gate", shape.num_experts, shape.hidden_size);
    if (is_hash_layer) {
      weights.experts_of_token = expert_table(prefix + "gate.tid2eid");
    } else {
      weights.bias = reader_.floats(prefix + "gate.bias", {shape.num_experts});
    }
    for (std::int32_t e = 0; e < shape.num_experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", prefix, e);
      weights.gate_up.push_back(gate_up(expert));
      weights.down.push_back(reader_.linear(expert + "w2", shape.hidden_size, shape.intermediate_size));
    }
    weights.shared_gate_up.push_back(gate_up(prefix + "shared_experts."));
    weights.shared_down.push_back(
        reader_.linear(prefix + "shared_experts.w2", shape.hidden_size, shape.intermediate_size));
    return weights;
  }

  /// [vocab_size, top_k], int32 or int64.
  std::vector<std::int32_t> expert_table(const std::string& name) {
    const weights::TensorInfo* found = reader_.checkpoint().find(name);
    const bool is_int64 = found != nullptr && found->dtype == device::DType::kI64;
    const std::span<const std::byte> bytes = reader_.mapped(name, is_int64 ? device::DType::kI64 : device::DType::kI32,
                                                            {config_.decoder.vocab_size, config_.experts.top_k});
    const std::size_t size = is_int64 ? sizeof(std::int64_t) : sizeof(std::int32_t);
    std::vector<std::int32_t> table(bytes.size() / size);
    for (std::size_t i = 0; i < table.size(); ++i) {
      std::uint64_t expert = 0;  // little endian: a narrow number fills the low half
      std::memcpy(&expert, bytes.data() + i * size, size);
      table[i] = static_cast<std::int32_t>(std::min<std::uint64_t>(expert, kNoExpert));
    }
    return table;
  }

  kernels::LinearWeight gate_up(const std::string& prefix) {
    const layers::MoeShape& shape = config_.experts;
    return reader_.linear({{prefix + "w1", shape.intermediate_size}, {prefix + "w3", shape.intermediate_size}},
                          shape.hidden_size, kernels::RowOrder::kInterleave);
  }

  layers::WeightReader& reader_;
  const Config& config_;
};

}  // namespace

Weights load_weights(layers::WeightReader& reader, const Config& config) {
  Loader loader(reader, config);
  Weights weights;
  weights.vocabulary = layers::load_vocabulary(reader, "embed", config.decoder.tied_head ? "" : "head",
                                               config.decoder.vocab_size, config.decoder.hidden_size);
  for (std::int32_t layer = 0; layer < config.decoder.num_layers; ++layer) {
    weights.blocks.push_back(loader.block(layer));
  }
  weights.head_mix = loader.mix("hc_head", config.mhc.num_streams, 1);
  weights.norm = loader.norm("norm", config.decoder.hidden_size);
  return weights;
}

Status check_expert_tables(const Weights& weights, const Config& config, const std::string& path) {
  const auto is_wrong = [&](std::int32_t expert) { return expert >= config.experts.num_experts; };
  for (std::size_t layer = 0; layer < weights.blocks.size(); ++layer) {
    const std::vector<std::int32_t>& table = weights.blocks[layer].experts.experts_of_token;
    const auto wrong = std::ranges::find_if(table, is_wrong);
    if (wrong == table.end()) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: tensor 'layers.{}.ffn.gate.tid2eid' sends token {} to an expert that is not there, "
                    "needed numbers from 0 to {}",
                    path, layer, (wrong - table.begin()) / config.experts.top_k, config.experts.num_experts - 1));
  }
  return {};
}

}  // namespace thalweg::models::deepseek_v4
