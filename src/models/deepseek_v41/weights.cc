#include "models/deepseek_v41/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace thalweg::models::deepseek_v41 {
namespace {

class BlockLoader {
 public:
  BlockLoader(layers::WeightReader& reader, const Config& config) : reader_(reader), config_(config) {}

  BlockWeights block(const std::string& prefix, const ExpertSettings& experts) {
    BlockWeights block;
    block.attention_mix = mix(prefix + "hc_attn");
    block.attention_norm = norm(prefix + "attn_norm", config_.hidden_size);
    block.attention = attention(prefix + "attn.");
    block.feed_forward_mix = mix(prefix + "hc_ffn");
    block.feed_forward_norm = norm(prefix + "ffn_norm", config_.hidden_size);
    block.experts = load_experts(prefix + "ffn.", experts);
    return block;
  }

  CompressorWeights compressor(const std::string& prefix, std::int32_t ratio) {
    CompressorWeights weights;
    const std::string name = prefix + "compressor.";
    weights.value_gate = ratio == 1
                             ? reader_.linear(name + "wkv", config_.head_dim, config_.hidden_size)
                             : reader_.linear({{name + "wkv", config_.head_dim}, {name + "wgate", config_.head_dim}},
                                              config_.hidden_size);
    weights.norm = norm(name + "norm", config_.head_dim);
    weights.index_key = reader_.linear(prefix + "indexer.wk", config_.index.head_dim, config_.head_dim);
    weights.index_key_norm = norm(prefix + "indexer.k_norm", config_.index.head_dim);
    return weights;
  }

  IndexWeights index(const std::string& prefix) {
    const IndexSettings& index = config_.index;
    return {.query = reader_.linear(prefix + "indexer.wq_b", std::int64_t{index.num_heads} * index.head_dim,
                                    config_.q_lora_rank),
            .head_weights = reader_.linear(prefix + "indexer.weights_proj", index.num_heads, config_.hidden_size)};
  }

  EngramWeights engram(const std::string& prefix, std::int64_t num_rows) {
    const EngramSettings& engram = config_.engram;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t streams = config_.mhc.num_streams;
    const std::int64_t width = std::int64_t{engram.hash.max_ngram_size - 1} * engram.hash.num_heads * engram.head_dim;
    EngramWeights weights;
    weights.table = {
        .codes = reader_.mapped(prefix + "embed.weight", device::DType::kF8E4M3, {num_rows, engram.head_dim}).data(),
        .scales =
            reader_.mapped(prefix + "embed.scale", device::DType::kF8E8M0, {num_rows, engram.head_dim / 32}).data(),
        .num_rows = num_rows,
        .head_dim = engram.head_dim};
    weights.key_value = reader_.linear(prefix + "wkv", (streams + 1) * hidden, width);
    weights.q_weight = reader_.floats(prefix + "q_weight", {streams, hidden});
    weights.k_weight = reader_.floats(prefix + "k_weight", {streams, hidden});
    return weights;
  }

  layers::Norm norm(const std::string& name, std::int64_t size) {
    return layers::load_norm(reader_, name, size, config_.norm_epsilon);
  }

 private:
  MixWeights mix(const std::string& prefix) {
    const std::int64_t streams = config_.mhc.num_streams;
    const std::int64_t rows = streams * (streams + 2);
    return {.fn = reader_.floats(prefix + "_fn", {rows, streams * config_.hidden_size}),
            .base = reader_.floats(prefix + "_base", {rows}),
            .scale = reader_.floats(prefix + "_scale", {3})};
  }

  AttentionWeights attention(const std::string& prefix) {
    AttentionWeights weights;
    weights.q_down = reader_.linear(prefix + "wq_a", config_.q_lora_rank, config_.hidden_size);
    weights.q_norm = norm(prefix + "q_norm", config_.q_lora_rank);
    weights.q_up =
        reader_.linear(prefix + "wq_b", std::int64_t{config_.num_heads} * config_.head_dim, config_.q_lora_rank);
    weights.kv = reader_.linear(prefix + "wkv", config_.head_dim, config_.hidden_size);
    weights.kv_norm = norm(prefix + "kv_norm", config_.head_dim);
    weights.sinks = reader_.floats(prefix + "attn_sink", {config_.num_heads});
    weights.out_a = reader_.row_groups(prefix + "wo_a", config_.num_output_groups, config_.output_lora_rank,
                                       config_.rows_per_group());
    weights.out_b = reader_.linear(prefix + "wo_b", config_.hidden_size,
                                   std::int64_t{config_.num_output_groups} * config_.output_lora_rank);
    return weights;
  }

  kernels::LinearWeight gate_up(const std::string& prefix) {
    return reader_.linear({{prefix + "w1", config_.intermediate_size}, {prefix + "w3", config_.intermediate_size}},
                          config_.hidden_size, kernels::RowOrder::kInterleave);
  }

  ExpertWeights load_experts(const std::string& prefix, const ExpertSettings& experts) {
    ExpertWeights weights;
    weights.gate = reader_.linear(prefix + "gate", experts.num_experts, config_.hidden_size);
    weights.bias = reader_.floats(prefix + "gate.bias", {experts.num_experts});
    reader_.ignore(prefix + "gate.bias_vl");  // of image positions
    const layers::ExpertRange all{0, experts.num_experts, experts.num_experts};
    weights.gate_up = reader_.indexed_experts(prefix + "experts",
                                              {{"w1", config_.intermediate_size}, {"w3", config_.intermediate_size}},
                                              all, config_.hidden_size, kernels::RowOrder::kInterleave);
    weights.down = reader_.indexed_experts(prefix + "experts", {{"w2", config_.hidden_size}}, all,
                                           config_.intermediate_size, kernels::RowOrder::kConcatenate);
    const std::string shared = prefix + "shared_experts.";
    weights.shared_gate_up = gate_up(shared);
    weights.shared_down = reader_.linear(shared + "w2", config_.hidden_size, config_.intermediate_size);
    return weights;
  }

  layers::WeightReader& reader_;
  const Config& config_;
};

DsparkWeights load_dspark(layers::WeightReader& reader, BlockLoader& loader, const Config& config) {
  const DsparkSettings& dspark = config.dspark;
  const std::string last = fmt::format("mtp.{}.", dspark.num_stages - 1);
  DsparkWeights weights;
  weights.input = reader.linear("mtp.0.main_proj", config.hidden_size,
                                static_cast<std::int64_t>(dspark.target_layers.size()) * config.hidden_size);
  weights.input_norm = loader.norm("mtp.0.main_norm", config.hidden_size);
  for (std::int32_t n = 0; n < dspark.num_stages; ++n) {
    weights.stages.push_back(loader.block(fmt::format("mtp.{}.", n), dspark.experts));
  }
  weights.norm = loader.norm(last + "norm", config.hidden_size);
  weights.markov_embedding = reader.linear(last + "markov_head.embed", config.vocab_size, dspark.markov_rank);
  weights.markov_head = reader.linear(last + "markov_head.head", config.vocab_size, dspark.markov_rank);
  weights.confidence =
      reader.floats(last + "confidence_head.proj.weight", {1, config.hidden_size + dspark.markov_rank});
  return weights;
}

}  // namespace

Weights load_weights(layers::WeightReader& reader, const Config& config, bool loads_draft_model) {
  BlockLoader loader(reader, config);
  const std::vector<LayerRole> roles = layer_roles(config);
  Weights weights;
  weights.mapped_files = reader.checkpoint().hold();
  weights.vocabulary = layers::load_vocabulary(reader, "embed", "head", config.vocab_size, config.hidden_size);
  for (std::int32_t l = 0; l < config.num_layers; ++l) {
    const LayerRole& role = roles[static_cast<std::size_t>(l)];
    const std::string prefix = fmt::format("layers.{}.", l);
    if (role.engram >= 0) {
      weights.engrams.push_back(
          loader.engram(prefix + "engram.", config.engram.num_rows[static_cast<std::size_t>(role.engram)]));
    }
    BlockWeights& block = weights.blocks.emplace_back(loader.block(prefix, config.experts));
    if (role.kv_owner == l) block.attention.compressor = loader.compressor(prefix + "attn.", role.ratio);
    if (role.index_owner == l) block.attention.index = loader.index(prefix + "attn.");
  }
  weights.norm = loader.norm("norm", config.hidden_size);
  if (loads_draft_model) {
    weights.dspark = load_dspark(reader, loader, config);
  } else {
    reader.ignore("mtp.");
  }
  for (const char* vision : {"vision.", "aligner.", "image_start", "image_end", "image_newline"}) reader.ignore(vision);
  return weights;
}

}  // namespace thalweg::models::deepseek_v41
