#include "models/deepseek_v41/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "weights/fp8.h"

namespace thalweg::models::deepseek_v41 {
namespace {

constexpr std::int32_t kQuantGroup = 32;  // channels that share a scale in weights, activations and cache rows
constexpr std::int64_t kMaxEngramVocabSize = std::int64_t{1} << 32;
// What each token of a step, or each slot, takes memory for.
constexpr std::int64_t kMaxWindow = 1 << 16;
constexpr std::int64_t kMaxIndexTopK = 1 << 16;
constexpr std::int64_t kMaxCandidateBlocks = 1 << 16;
constexpr std::int64_t kMaxCandidateBlockSize = 1024;  // a block lies within one piece of the index kernel

/// Values that the architecture fixes; another one means another revision of the model.
void require_text(ConfigReader& reader, const char* key, const char* needed) {
  const std::string found = reader.text(key, needed);
  if (found != needed) reader.unsupported(key, fmt::format("'{}'", found), fmt::format("'{}'", needed));
}

void require_multiple(ConfigReader& reader, const char* key, std::int64_t value, std::int64_t of) {
  if (value % of != 0) reader.reject(key, fmt::to_string(value), fmt::format("a multiple of {}", of));
}

std::vector<std::int32_t> layers_of(ConfigReader& reader, const char* key, std::int32_t num_layers) {
  std::vector<std::int32_t> layers;
  for (const std::int64_t layer : reader.integers(key)) {
    if (layer < 0 || layer >= num_layers || (!layers.empty() && layer <= layers.back())) {
      reader.reject(key, fmt::format("[{}]", fmt::join(reader.integers(key), ", ")),
                    fmt::format("rising layers from 0 to {}", num_layers - 1));
      return {};
    }
    layers.push_back(static_cast<std::int32_t>(layer));
  }
  return layers;
}

ExpertSettings read_experts(ConfigReader& reader, const char* count_key, const char* top_k_key) {
  ExpertSettings experts{reader.count(count_key, kMaxExperts), reader.count(top_k_key, kMaxExperts)};
  if (experts.top_k > experts.num_experts) {
    reader.reject(top_k_key, fmt::to_string(experts.top_k),
                  fmt::format("at most {}, which is {}", count_key, experts.num_experts));
  }
  return experts;
}

void read_sizes(ConfigReader& reader, Config& config) {
  config.vocab_size = reader.count("vocab_size", kMaxVocabSize);
  config.max_position = reader.count("max_position_embeddings", kMaxPosition);
  config.num_layers = reader.count("num_hidden_layers", kMaxLayers);
  config.hidden_size = reader.count("hidden_size", kMaxHiddenSize);
  config.num_heads = reader.count("num_attention_heads", kMaxHeads);
  config.head_dim = reader.count("head_dim", kMaxHeadDim);
  config.rope_dim = reader.count("qk_rope_head_dim", kMaxHeadDim);
  config.q_lora_rank = reader.count("q_lora_rank", kMaxHiddenSize);
  config.num_output_groups = reader.count("o_groups", kMaxHeads);
  config.output_lora_rank = reader.count("o_lora_rank", kMaxHiddenSize);
  config.window = reader.count("sliding_window", kMaxWindow);
  config.intermediate_size = reader.count("moe_intermediate_size", kMaxIntermediateSize);
  config.activation_limit = static_cast<float>(reader.number("swiglu_limit", 0.0, 1e6, 10.0));
  config.routed_scale = static_cast<float>(reader.number("routed_scaling_factor", 0.0, 1e6, 1.5));
  config.gate_temperature = static_cast<float>(reader.number("gate_temp", 1e-6, 1e6, 1.0));
  config.norm_epsilon = static_cast<float>(reader.number("rms_norm_eps", 0.0, 1.0));
  config.experts = read_experts(reader, "n_routed_experts", "num_experts_per_tok");

  if (const std::int32_t heads = reader.count("num_key_value_heads", kMaxHeads, 1); heads != 1) {
    reader.unsupported("num_key_value_heads", fmt::to_string(heads), "1");
  }
  if (const std::int32_t shared = reader.count("n_shared_experts", kMaxExperts, 1); shared != 1) {
    reader.unsupported("n_shared_experts", fmt::to_string(shared), "1");
  }
  require_text(reader, "hidden_act", "silu");
  require_text(reader, "scoring_func", "sqrtsoftplus");
  require_text(reader, "topk_method", "noaux_tc");
  if (!reader.flag("norm_topk_prob", true)) reader.unsupported("norm_topk_prob", "false", "true");
  if (reader.flag("tie_word_embeddings", false)) reader.unsupported("tie_word_embeddings", "true", "false");
  if (reader.flag("attention_bias", false)) reader.unsupported("attention_bias", "true", "false");
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"hidden_size", config.hidden_size},
           {"head_dim", config.head_dim},
           {"q_lora_rank", config.q_lora_rank},
           {"o_lora_rank", config.output_lora_rank},
           {"moe_intermediate_size", config.intermediate_size}}) {
    require_multiple(reader, key, value, kQuantGroup);
  }
  require_multiple(reader, "qk_rope_head_dim", config.rope_dim, 2);
  if (config.rope_dim > config.head_dim) {
    reader.reject("qk_rope_head_dim", fmt::to_string(config.rope_dim),
                  fmt::format("at most head_dim, which is {}", config.head_dim));
  }
  require_multiple(reader, "num_attention_heads", config.num_heads, config.num_output_groups);
}

void read_mhc(ConfigReader& reader, Config& config) {
  constexpr std::int64_t kMaxStreams = 8;
  config.mhc.num_streams = reader.count("hc_mult", kMaxStreams);
  config.mhc.hidden_size = config.hidden_size;
  config.mhc.norm_epsilon = config.norm_epsilon;
  config.mhc.epsilon = static_cast<float>(reader.number("hc_eps", 0.0, 1.0));
  config.mhc.num_sinkhorn_steps = reader.count("hc_sinkhorn_iters", 1000);
}

void read_rope(ConfigReader& reader, RopeSettings& rope) {
  rope.theta = reader.number("rope_theta", 1.0, 1e12);
  rope.compressed_theta = reader.number("compress_rope_theta", 1.0, 1e12);
  const char* type_key = reader.has("rope_scaling.rope_type") ? "rope_scaling.rope_type" : "rope_scaling.type";
  require_text(reader, type_key, "yarn");
  rope.factor = reader.number("rope_scaling.factor", 1.0, 1e6);
  rope.beta_fast = reader.number("rope_scaling.beta_fast", 1e-3, 1e6, 32.0);
  rope.beta_slow = reader.number("rope_scaling.beta_slow", 1e-3, 1e6, 1.0);
  rope.original_max_position = reader.count("rope_scaling.original_max_position_embeddings", kMaxPosition);
}

void read_ratios(ConfigReader& reader, const Config& config, IndexSettings& index) {
  const std::vector<std::int64_t> ratios = reader.integers("compress_ratios");
  if (static_cast<std::int64_t>(ratios.size()) < config.num_layers) {
    reader.reject("compress_ratios", fmt::format("{} numbers", ratios.size()),
                  fmt::format("one for each of the {} layers", config.num_layers));
    return;
  }
  for (std::size_t l = 0; l < ratios.size(); ++l) {
    const bool is_draft_stage = l >= static_cast<std::size_t>(config.num_layers);
    if (ratios[l] < 0 || ratios[l] > 2 || (is_draft_stage && ratios[l] != 0)) {
      reader.reject("compress_ratios", fmt::format("{} at layer {}", ratios[l], l),
                    is_draft_stage ? "0 for draft stages" : "0, 1 or 2");
      return;
    }
    if (!is_draft_stage) index.compress_ratios.push_back(static_cast<std::int32_t>(ratios[l]));
  }
}

/// Owners must come before whoever reads them and agree with them about the ratio.
void check_owners(ConfigReader& reader, const Config& config) {
  const IndexSettings& index = config.index;
  if (index.kv_sources.empty()) {
    reader.reject("kv_source_layer_ids", "empty", "at least one layer");
    return;
  }
  const auto owner_before = [](const std::vector<std::int32_t>& sources, std::int32_t layer) {
    const auto next = std::ranges::upper_bound(sources, layer);
    return next == sources.begin() ? -1 : *(next - 1);
  };
  for (std::int32_t l = 0; l < config.num_layers; ++l) {
    const std::int32_t ratio = index.compress_ratios[static_cast<std::size_t>(l)];
    const std::int32_t kv_owner = owner_before(index.kv_sources, l);
    const std::int32_t index_owner = owner_before(index.index_sources, l);
    const bool is_source = std::ranges::binary_search(index.kv_sources, l);
    if (ratio == 0) {
      if (is_source || std::ranges::binary_search(index.index_sources, l)) {
        reader.reject("compress_ratios", fmt::format("0 at source layer {}", l), "1 or 2 there");
      }
      continue;
    }
    if (kv_owner < 0 || index_owner < kv_owner) {
      reader.reject("index_source_layer_ids", fmt::format("[{}]", fmt::join(index.index_sources, ", ")),
                    fmt::format("for layer {} a kv source before it and an index source not before that", l));
      return;
    }
    const std::int32_t owner_ratio = index.compress_ratios[static_cast<std::size_t>(kv_owner)];
    if (owner_ratio != ratio) {
      reader.reject("compress_ratios", fmt::format("{} at layer {}", ratio, l),
                    fmt::format("{}, as its kv source {} has", owner_ratio, kv_owner));
      return;
    }
  }
}

void read_index(ConfigReader& reader, Config& config) {
  IndexSettings& index = config.index;
  read_ratios(reader, config, index);
  index.kv_sources = layers_of(reader, "kv_source_layer_ids", config.num_layers);
  index.index_sources = layers_of(reader, "index_source_layer_ids", config.num_layers);
  index.num_heads = reader.count("index_n_heads", kMaxHeads);
  index.head_dim = reader.count("index_head_dim", kMaxHeadDim);
  index.top_k = reader.count("index_topk", kMaxIndexTopK);
  require_multiple(reader, "index_head_dim", index.head_dim, kQuantGroup);
  if (config.rope_dim > index.head_dim) {
    reader.reject("index_head_dim", fmt::to_string(index.head_dim),
                  fmt::format("at least qk_rope_head_dim, which is {}", config.rope_dim));
  }
  if (reader.has("candidate_source_layer_id")) {
    const std::int32_t source = reader.count_or_zero("candidate_source_layer_id", kMaxLayers);
    // Later indexes choose among its blocks, so they must read the same entries.
    const std::int32_t last_kv_source = index.kv_sources.empty() ? 0 : index.kv_sources.back();
    if (!std::ranges::binary_search(index.index_sources, source) || source < last_kv_source) {
      reader.reject("candidate_source_layer_id", fmt::to_string(source),
                    fmt::format("one of index_source_layer_ids, not before the last kv source {}", last_kv_source));
    }
    index.candidate_source = source;
    index.candidate_block_size = reader.count("candidate_block_size", kMaxCandidateBlockSize);
    index.max_candidate_blocks = reader.count("candidate_topk_blocks", kMaxCandidateBlocks);
  }
  if (reader.status()) check_owners(reader, config);
}

void read_engram(ConfigReader& reader, Config& config) {
  EngramSettings& engram = config.engram;
  engram.hash.layer_ids = layers_of(reader, "engram_layer_ids", config.num_layers);
  if (engram.hash.layer_ids.empty()) return;
  engram.hash.max_ngram_size = reader.count("engram_max_ngram_size", 16);
  engram.hash.num_heads = reader.count("engram_n_heads", 256);
  engram.hash.compressed_vocab_size = reader.count("engram_compressed_vocab_size", kMaxVocabSize);
  engram.hash.min_vocab_size =
      static_cast<std::int64_t>(reader.number("engram_vocab_size", 1.0, static_cast<double>(kMaxEngramVocabSize)));
  engram.pad_token_id = reader.count_or_zero("engram_pad_token_id", config.vocab_size - 1);
  engram.head_dim = reader.count("engram_head_dim", kMaxHiddenSize);
  require_multiple(reader, "engram_head_dim", engram.head_dim, kQuantGroup);
  if (engram.hash.max_ngram_size < 2) reader.reject("engram_max_ngram_size", "1", "at least 2");
  engram.num_rows = reader.integers("engram_num_embeddings");
  if (engram.num_rows.size() != engram.hash.layer_ids.size()) {
    reader.reject("engram_num_embeddings", fmt::format("{} numbers", engram.num_rows.size()),
                  fmt::format("one for each of the {} engram layers", engram.hash.layer_ids.size()));
  }
}

void read_dspark(ConfigReader& reader, Config& config) {
  DsparkSettings& dspark = config.dspark;
  dspark.num_stages = reader.count_or_zero("num_nextn_predict_layers", kMaxLayers);
  if (dspark.num_stages == 0) return;
  dspark.block_size = reader.count("dspark_block_size", 64);
  dspark.noise_token_id = reader.count_or_zero("dspark_noise_token_id", config.vocab_size - 1);
  dspark.target_layers = layers_of(reader, "dspark_target_layer_ids", config.num_layers);
  dspark.markov_rank = reader.count("dspark_markov_rank", kMaxHiddenSize);
  dspark.experts = read_experts(reader, "dspark_n_routed_experts", "dspark_num_experts_per_tok");
  const std::int32_t first = config.index.kv_sources.empty() ? 0 : config.decoder_begin() + 1;
  if (dspark.target_layers.empty() || dspark.target_layers.front() < first) {
    reader.reject("dspark_target_layer_ids", fmt::format("[{}]", fmt::join(dspark.target_layers, ", ")),
                  fmt::format("layers from {} on, behind the last kv source", first));
  }
}

void check_quantization(ConfigReader& reader) {
  const Result<std::optional<weights::Fp8Block>> block = weights::fp8_block(reader.checkpoint());
  if (!block) {
    reader.keep(block.error());
  } else if (*block && ((*block)->rows != kQuantGroup || (*block)->cols != kQuantGroup)) {
    reader.unsupported("quantization_config.weight_block_size", fmt::format("[{}, {}]", (*block)->rows, (*block)->cols),
                       "[32, 32]");
  }
}

}  // namespace

Result<Config> read_config(const weights::Checkpoint& checkpoint) {
  const bool is_nested = checkpoint.metadata().has("text_config");
  ConfigReader reader(checkpoint, is_nested ? "text_config." : "");
  Config config;
  read_sizes(reader, config);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  read_mhc(reader, config);
  read_rope(reader, config.rope);
  read_index(reader, config);
  read_engram(reader, config);
  read_dspark(reader, config);
  check_quantization(reader);
  ConfigReader top(checkpoint, "");
  if (top.has("image_token_id")) config.image_token_id = top.count_or_zero("image_token_id", config.vocab_size - 1);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  if (Status status = top.status(); !status) return std::unexpected(status.error());
  return config;
}

std::vector<LayerRole> layer_roles(const Config& config) {
  std::vector<LayerRole> roles(static_cast<std::size_t>(config.num_layers));
  std::int32_t kv_owner = -1;
  std::int32_t index_owner = -1;
  for (std::int32_t l = 0; l < config.num_layers; ++l) {
    LayerRole& role = roles[static_cast<std::size_t>(l)];
    role.ratio = config.index.compress_ratios[static_cast<std::size_t>(l)];
    if (std::ranges::binary_search(config.index.kv_sources, l)) kv_owner = l;
    if (std::ranges::binary_search(config.index.index_sources, l)) index_owner = l;
    if (role.ratio > 0) {
      role.kv_owner = kv_owner;
      role.index_owner = index_owner;
    }
    const auto engram = std::ranges::find(config.engram.hash.layer_ids, l);
    if (engram != config.engram.hash.layer_ids.end()) {
      role.engram = static_cast<std::int32_t>(engram - config.engram.hash.layer_ids.begin());
    }
  }
  return roles;
}

const char* LayerRole::name(std::int32_t layer) const {
  if (ratio == 0) return "window";
  if (kv_owner == layer) return "full";
  return index_owner == layer ? "reindex" : "reuse";
}

}  // namespace thalweg::models::deepseek_v41
