#include "models/deepseek_v41/inventory.h"

#include <fmt/format.h>

#include <utility>

namespace thalweg::models::deepseek_v41 {
namespace {

using device::DType;

constexpr std::int64_t kQuantGroup = 32;

std::int64_t groups(std::int64_t count) { return (count + kQuantGroup - 1) / kQuantGroup; }

class Lister {
 public:
  explicit Lister(const Config& config) : config_(config) {}

  std::vector<Parameter> take() && { return std::move(parameters_); }

  void backbone() {
    const std::vector<LayerRole> roles = layer_roles(config_);
    add("embed.weight", Storage::kBF16, {config_.vocab_size, hidden_}, Part::kVocabulary, Split::kVocabulary);
    for (std::int32_t l = 0; l < config_.num_layers; ++l) {
      const LayerRole& role = roles[static_cast<std::size_t>(l)];
      const std::string prefix = fmt::format("layers.{}.", l);
      if (role.engram >= 0) {
        engram(prefix + "engram.", config_.engram.num_rows[static_cast<std::size_t>(role.engram)]);
      }
      block(prefix, config_.experts);
      if (role.kv_owner == l) compressor(prefix + "attn.", role.ratio);
      if (role.index_owner == l) index(prefix + "attn.");
    }
    norm("norm", hidden_, Part::kNorms);
    add("head.weight", Storage::kBF16, {config_.vocab_size, hidden_}, Part::kVocabulary, Split::kVocabulary);
  }

  void draft_model() {
    const DsparkSettings& dspark = config_.dspark;
    if (dspark.num_stages == 0) return;
    is_draft_ = true;
    const auto num_targets = static_cast<std::int64_t>(dspark.target_layers.size());
    add("mtp.0.main_proj", Storage::kF8Tiles, {hidden_, num_targets * hidden_}, Part::kDraftDense);
    norm("mtp.0.main_norm", hidden_, Part::kDraftDense);
    for (std::int32_t n = 0; n < dspark.num_stages; ++n) block(fmt::format("mtp.{}.", n), dspark.experts);
    const std::string last = fmt::format("mtp.{}.", dspark.num_stages - 1);
    norm(last + "norm", hidden_, Part::kDraftDense);
    for (const char* name : {"markov_head.embed.weight", "markov_head.head.weight"}) {
      add(last + name, Storage::kBF16, {config_.vocab_size, dspark.markov_rank}, Part::kDraftDense, Split::kVocabulary);
    }
    add(last + "confidence_head.proj.weight", Storage::kBF16, {1, hidden_ + dspark.markov_rank}, Part::kDraftDense);
  }

 private:
  void add(std::string name, Storage storage, std::vector<std::int64_t> shape, Part part, Split split = Split::kNone) {
    if (is_draft_) part = part == Part::kRoutedExperts ? Part::kDraftExperts : Part::kDraftDense;
    parameters_.push_back({std::move(name), storage, std::move(shape), part, split});
  }

  void norm(const std::string& name, std::int64_t size, Part part) {
    add(name + ".weight", Storage::kBF16, {size}, part);
  }

  void block(const std::string& prefix, const ExpertSettings& experts) {
    norm(prefix + "attn_norm", hidden_, Part::kNorms);
    norm(prefix + "ffn_norm", hidden_, Part::kNorms);
    const std::int64_t streams = config_.mhc.num_streams;
    for (const char* mix : {"hc_attn", "hc_ffn"}) {
      const std::int64_t rows = streams * (streams + 2);
      add(prefix + mix + "_fn", Storage::kF32, {rows, streams * hidden_}, Part::kStreamMixes);
      add(prefix + mix + "_base", Storage::kF32, {rows}, Part::kStreamMixes);
      add(prefix + mix + "_scale", Storage::kF32, {3}, Part::kStreamMixes);
    }
    attention(prefix + "attn.");
    feed_forward(prefix + "ffn.", experts);
  }

  void attention(const std::string& prefix) {
    const std::int64_t width = std::int64_t{config_.num_heads} * config_.head_dim;
    const std::int64_t out_width = std::int64_t{config_.num_output_groups} * config_.output_lora_rank;
    add(prefix + "wq_a", Storage::kF8Tiles, {config_.q_lora_rank, hidden_}, Part::kAttention);
    norm(prefix + "q_norm", config_.q_lora_rank, Part::kAttention);
    add(prefix + "wq_b", Storage::kF8Tiles, {width, config_.q_lora_rank}, Part::kAttention, Split::kHeads);
    add(prefix + "wkv", Storage::kF8Tiles, {config_.head_dim, hidden_}, Part::kAttention);
    norm(prefix + "kv_norm", config_.head_dim, Part::kAttention);
    add(prefix + "attn_sink", Storage::kF32, {config_.num_heads}, Part::kAttention, Split::kHeads);
    add(prefix + "wo_a", Storage::kF8Tiles, {out_width, config_.rows_per_group()}, Part::kAttention, Split::kHeads);
    add(prefix + "wo_b", Storage::kF8Tiles, {hidden_, out_width}, Part::kAttention, Split::kHeads);
  }

  void feed_forward(const std::string& prefix, const ExpertSettings& experts) {
    add(prefix + "gate.weight", Storage::kBF16, {experts.num_experts, hidden_}, Part::kRouters);
    add(prefix + "gate.bias", Storage::kF32, {experts.num_experts}, Part::kRouters);
    add(prefix + "gate.bias_vl", Storage::kF32, {experts.num_experts}, Part::kRouters);
    expert(prefix + "shared_experts.", Storage::kF8Tiles, Part::kSharedExperts, Split::kSharedExpert);
    for (std::int32_t e = 0; e < experts.num_experts; ++e) {
      expert(fmt::format("{}experts.{}.", prefix, e), Storage::kF4Rows, Part::kRoutedExperts, Split::kExperts);
    }
  }

  void expert(const std::string& prefix, Storage storage, Part part, Split split) {
    add(prefix + "w1", storage, {config_.intermediate_size, hidden_}, part, split);
    add(prefix + "w2", storage, {hidden_, config_.intermediate_size}, part, split);
    add(prefix + "w3", storage, {config_.intermediate_size, hidden_}, part, split);
  }

  void compressor(const std::string& prefix, std::int32_t ratio) {
    add(prefix + "compressor.wkv.weight", Storage::kBF16, {config_.head_dim, hidden_}, Part::kCompressors);
    if (ratio > 1) {
      add(prefix + "compressor.wgate.weight", Storage::kBF16, {config_.head_dim, hidden_}, Part::kCompressors);
    }
    norm(prefix + "compressor.norm", config_.head_dim, Part::kCompressors);
    add(prefix + "indexer.wk.weight", Storage::kBF16, {config_.index.head_dim, config_.head_dim}, Part::kIndexers);
    norm(prefix + "indexer.k_norm", config_.index.head_dim, Part::kIndexers);
  }

  void index(const std::string& prefix) {
    const IndexSettings& index = config_.index;
    const std::int64_t width = std::int64_t{index.num_heads} * index.head_dim;
    add(prefix + "indexer.wq_b", Storage::kF8Tiles, {width, config_.q_lora_rank}, Part::kIndexers);
    add(prefix + "indexer.weights_proj.weight", Storage::kBF16, {index.num_heads, hidden_}, Part::kIndexers);
  }

  void engram(const std::string& prefix, std::int64_t num_rows) {
    const EngramSettings& engram = config_.engram;
    const std::int64_t streams = config_.mhc.num_streams;
    const std::int64_t width = std::int64_t{engram.hash.max_ngram_size - 1} * engram.hash.num_heads * engram.head_dim;
    add(prefix + "embed", Storage::kF8Rows, {num_rows, engram.head_dim}, Part::kEngramTables, Split::kTableRows);
    add(prefix + "wkv", Storage::kF8Tiles, {(streams + 1) * hidden_, width}, Part::kEngramProjections);
    add(prefix + "q_weight", Storage::kBF16, {streams, hidden_}, Part::kEngramProjections);
    add(prefix + "k_weight", Storage::kBF16, {streams, hidden_}, Part::kEngramProjections);
  }

  const Config& config_;
  const std::int64_t hidden_ = config_.hidden_size;
  bool is_draft_ = false;
  std::vector<Parameter> parameters_;
};

}  // namespace

const char* part_name(Part part) {
  switch (part) {
    case Part::kAttention:
      return "attention";
    case Part::kSharedExperts:
      return "shared experts";
    case Part::kRouters:
      return "routers";
    case Part::kStreamMixes:
      return "stream mixes";
    case Part::kNorms:
      return "norms";
    case Part::kRoutedExperts:
      return "routed experts";
    case Part::kCompressors:
      return "compressors";
    case Part::kIndexers:
      return "indexers";
    case Part::kVocabulary:
      return "embedding and head";
    case Part::kEngramTables:
      return "Engram tables";
    case Part::kEngramProjections:
      return "Engram projections";
    case Part::kDraftExperts:
      return "draft experts";
    case Part::kDraftDense:
      return "draft model, the rest";
    case Part::kVision:
      return "vision";
  }
  return "";
}

std::vector<StoredTensor> stored_tensors(const Parameter& parameter) {
  const std::vector<std::int64_t>& shape = parameter.shape;
  switch (parameter.storage) {
    case Storage::kF32:
      return {{parameter.name, DType::kF32, shape}};
    case Storage::kBF16:
      return {{parameter.name, DType::kBF16, shape}};
    case Storage::kF8Tiles:
      return {{parameter.name + ".weight", DType::kF8E4M3, shape},
              {parameter.name + ".scale", DType::kF8E8M0, {groups(shape[0]), groups(shape[1])}}};
    case Storage::kF8Rows:
      return {{parameter.name + ".weight", DType::kF8E4M3, shape},
              {parameter.name + ".scale", DType::kF8E8M0, {shape[0], groups(shape[1])}}};
    case Storage::kF4Rows:
      return {{parameter.name + ".weight", DType::kI8, {shape[0], shape[1] / 2}},
              {parameter.name + ".scale", DType::kF8E8M0, {shape[0], groups(shape[1])}}};
  }
  return {};
}

std::int64_t stored_bytes(const Parameter& parameter) {
  std::int64_t num_bytes = 0;
  for (const StoredTensor& tensor : stored_tensors(parameter)) {
    std::int64_t num_elements = 1;
    for (const std::int64_t size : tensor.shape) num_elements *= size;
    num_bytes += device::row_bytes(tensor.dtype, num_elements);
  }
  return num_bytes;
}

std::vector<Parameter> inventory(const Config& config) {
  Lister lister(config);
  lister.backbone();
  lister.draft_model();
  return std::move(lister).take();
}

std::vector<Parameter> inventory(const VisionTower& tower, std::int64_t embedding_size) {
  std::vector<Parameter> parameters;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    parameters.push_back({std::move(name), Storage::kBF16, std::move(shape), Part::kVision, Split::kNone});
  };
  const auto add_linear = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    add(name + ".weight", {rows, cols});
    add(name + ".bias", {rows});
  };
  constexpr std::int64_t kColours = 3;
  const std::int64_t hidden = tower.hidden_size;
  add_linear("vision.patch_embed.proj", hidden, kColours * tower.patch_size * tower.patch_size);
  for (std::int32_t b = 0; b < tower.num_layers; ++b) {
    const std::string prefix = fmt::format("vision.blocks.{}.", b);
    add(prefix + "norm1.weight", {hidden});
    add_linear(prefix + "attn.wqkv", 3 * hidden, hidden);
    add_linear(prefix + "attn.wo", hidden, hidden);
    add(prefix + "norm2.weight", {hidden});
    add(prefix + "mlp.w1.weight", {2 * tower.intermediate_size, hidden});
    add(prefix + "mlp.w2.weight", {hidden, tower.intermediate_size});
  }
  add("vision.norm.weight", {hidden});
  add_linear("aligner.w1", embedding_size, hidden * tower.downsample_ratio * tower.downsample_ratio);
  add_linear("aligner.w2", embedding_size, embedding_size);
  for (const char* name : {"image_start", "image_end", "image_newline"}) add(name, {embedding_size});
  return parameters;
}

}  // namespace thalweg::models::deepseek_v41
