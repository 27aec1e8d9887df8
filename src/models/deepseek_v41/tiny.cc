#include "models/deepseek_v41/tiny.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "device/float_types.h"
#include "kernels/quant/quant.h"
#include "models/deepseek_v41/inventory.h"

namespace thalweg::models::deepseek_v41 {
namespace {

using kernels::QuantFormat;

constexpr std::int64_t kQuantGroup = 32;

/// The numbers of one weight, a function of their index.
class Noise {
 public:
  Noise(std::uint64_t seed, std::string_view name) : key_(mix(seed)) {
    for (const char letter : name) key_ = mix(key_ ^ static_cast<unsigned char>(letter));
  }

  /// Mean 0, variance 1, nearly normal: the sum of four evenly distributed 16-bit numbers.
  float at(std::uint64_t index) const {
    constexpr std::int32_t kMean = 2 * 65535;
    constexpr float kDeviation = 37836.9F;  // 65536 / sqrt(3)
    const std::uint64_t bits = mix(key_ + index * 0x9e3779b97f4a7c15U);
    std::int32_t sum = 0;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int32_t>(bits >> shift & 0xffffU);
    return static_cast<float>(sum - kMean) / kDeviation;
  }

 private:
  /// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit of x reaches every bit of the result.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
  }

  std::uint64_t key_;
};

/// How the values of weights are spread, by the endings of their names. No norm is all ones and no bias all zero, which
/// would hide that it is not read.
struct Spread {
  std::string_view ending;
  float mean;
  float deviation;
  bool is_projection;  // the deviation is over the square root of the inputs
};

constexpr Spread kSpreads[] = {
    {"norm.weight", 1.0F, 0.25F, false},
    {"engram.q_weight", 1.0F, 0.25F, false},
    {"engram.k_weight", 1.0F, 0.25F, false},
    {"_base", 0.0F, 0.7F, false},
    {"_scale", 0.75F, 0.1F, false},
    {"attn_sink", 0.0F, 1.0F, false},
    {"gate.bias", 0.0F, 2.0F, false},  // decides most routes
    {"gate.bias_vl", 0.0F, 2.0F, false},
    {"gate.weight", 0.0F, 2.0F, true},
    {"embed.weight", 0.0F, 1.0F, false},
    {"engram.embed", 0.0F, 1.0F, false},
    {"head.weight", 0.0F, 2.0F, true},
    {"wq_b", 0.0F, 1.5F, true},
    {"w1", 0.0F, 1.5F, true},
    {"w3", 0.0F, 1.5F, true},
    {"wo_b", 0.0F, 0.1F, true},  // what is added to the residual streams
    {"w2", 0.0F, 0.1F, true},
    {"engram.wkv", 0.0F, 0.1F, true},
    {"", 0.0F, 1.0F, true},
};

class ValueSource {
 public:
  ValueSource(const Parameter& parameter, std::uint64_t seed) : noise_(seed, parameter.name) {
    const Spread& spread = *std::ranges::find_if(
        kSpreads, [&](const Spread& candidate) { return parameter.name.ends_with(candidate.ending); });
    mean_ = spread.mean;
    deviation_ = spread.deviation;
    if (spread.is_projection) deviation_ /= std::sqrt(static_cast<float>(parameter.shape.back()));
  }

  void fill(std::int64_t first, std::vector<float>& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = mean_ + deviation_ * noise_.at(static_cast<std::uint64_t>(first) + i);
    }
  }

 private:
  Noise noise_;
  float mean_ = 0.0F;
  float deviation_ = 1.0F;
};

void append(std::vector<std::byte>& bytes, const void* data, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), first, first + size);
}

/// A weight as its tensors hold it, one after the other.
struct StoredBytes {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
};

void store_tile_rows(const std::vector<float>& rows, std::int64_t num_cols, StoredBytes& out) {
  const std::int64_t num_rows = static_cast<std::int64_t>(rows.size()) / num_cols;
  const std::size_t first = out.values.size();
  out.values.resize(first + rows.size());
  for (std::int64_t begin = 0; begin < num_cols; begin += kQuantGroup) {
    const std::int64_t end = std::min(begin + kQuantGroup, num_cols);
    float largest = 0.0F;
    for (std::int64_t r = 0; r < num_rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        largest = std::max(largest, std::abs(rows[static_cast<std::size_t>(r * num_cols + c)]));
      }
    }
    const std::uint8_t scale_code = device::f8_e8m0_ceil(std::max(largest, 1e-4F) * (1.0F / 448.0F));
    out.scales.push_back(std::byte{scale_code});
    const float scale = device::float_from_f8_e8m0(scale_code);
    for (std::int64_t r = 0; r < num_rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        const auto at = static_cast<std::size_t>(r * num_cols + c);
        out.values[first + at] = std::byte{device::f8_e4m3_from_float(rows[at] / scale)};
      }
    }
  }
}

/// Codes of the row, then its scales.
void store_row(QuantFormat format, const std::vector<float>& row, StoredBytes& out) {
  const auto num_cols = static_cast<std::int64_t>(row.size());
  std::vector<std::byte> stored(static_cast<std::size_t>(kernels::quant_row_bytes(format, num_cols)));
  kernels::quantize_row(format, row.data(), num_cols, stored.data());
  const std::size_t num_scales = row.size() / kQuantGroup;
  append(out.values, stored.data(), stored.size() - num_scales);
  append(out.scales, stored.data() + stored.size() - num_scales, num_scales);
}

void store_plain(Storage storage, const std::vector<float>& row, StoredBytes& out) {
  if (storage == Storage::kF32) return append(out.values, row.data(), row.size() * sizeof(float));
  for (const float value : row) {
    const std::uint16_t code = device::bf16_from_float(value);
    append(out.values, &code, sizeof(code));
  }
}

StoredBytes make(const Parameter& parameter, std::uint64_t seed) {
  const ValueSource source(parameter, seed);
  const std::int64_t num_cols = parameter.shape.back();
  const std::int64_t num_rows = parameter.shape.size() > 1 ? parameter.shape.front() : 1;
  const std::int64_t rows_per_turn = parameter.storage == Storage::kF8Tiles ? kQuantGroup : 1;
  StoredBytes out;
  std::vector<float> rows;
  for (std::int64_t first = 0; first < num_rows; first += rows_per_turn) {
    rows.resize(static_cast<std::size_t>(std::min(rows_per_turn, num_rows - first) * num_cols));
    source.fill(first * num_cols, rows);
    switch (parameter.storage) {
      case Storage::kF32:
      case Storage::kBF16:
        store_plain(parameter.storage, rows, out);
        break;
      case Storage::kF8Tiles:
        store_tile_rows(rows, num_cols, out);
        break;
      case Storage::kF8Rows:
        store_row(QuantFormat::kF8Block32, rows, out);
        break;
      case Storage::kF4Rows:
        store_row(QuantFormat::kF4Block32, rows, out);
        break;
    }
  }
  return out;
}

using Shard = std::vector<Parameter>;

/// As the release has it: the draft model and the tables lie in files of their own, so that a loader can leave them
/// out. Here the rest fills two files.
std::vector<Shard> divide(const Config& config) {
  std::vector<Shard> shards(4);
  std::int64_t rest_bytes = 0;
  const std::vector<Parameter> parameters = inventory(config);
  const auto is_rest = [](Part part) {
    return part != Part::kDraftExperts && part != Part::kDraftDense && part != Part::kEngramTables;
  };
  for (const Parameter& parameter : parameters) rest_bytes += is_rest(parameter.part) ? stored_bytes(parameter) : 0;
  std::int64_t placed = 0;
  for (const Parameter& parameter : parameters) {
    std::size_t shard = parameter.part == Part::kEngramTables ? 3 : 2;
    if (is_rest(parameter.part)) {
      shard = 2 * placed < rest_bytes ? 0 : 1;
      placed += stored_bytes(parameter);
    }
    shards[shard].push_back(parameter);
  }
  std::erase_if(shards, [](const Shard& shard) { return shard.empty(); });
  // Wide elements first, as the writer needs them.
  const auto width = [](Storage storage) { return storage == Storage::kF32 ? 4 : storage == Storage::kBF16 ? 2 : 1; };
  for (Shard& shard : shards) {
    std::ranges::stable_sort(shard, std::ranges::greater(), [&](const Parameter& p) { return width(p.storage); });
  }
  return shards;
}

Status write_shard(const Shard& shard, std::uint64_t seed, const std::string& path) {
  std::vector<StoredTensor> tensors;
  for (const Parameter& parameter : shard) {
    const std::vector<StoredTensor> stored = stored_tensors(parameter);
    tensors.insert(tensors.end(), stored.begin(), stored.end());
  }
  Result<weights::SafetensorsWriter> writer = weights::SafetensorsWriter::create(path, tensors, {{"format", "pt"}});
  if (!writer) return std::unexpected(writer.error());
  for (const Parameter& parameter : shard) {
    const StoredBytes bytes = make(parameter, seed);
    if (Status status = writer->append(bytes.values); !status) return status;
    if (Status status = writer->append(bytes.scales); !status) return status;
  }
  return writer->finish();
}

/// Names hold nothing that JSON would escape.
Status write_index(const std::vector<Shard>& shards, const std::vector<std::string>& names,
                   const std::filesystem::path& path) {
  std::int64_t num_bytes = 0;
  std::vector<std::string> places;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const Parameter& parameter : shards[i]) {
      num_bytes += stored_bytes(parameter);
      for (const StoredTensor& tensor : stored_tensors(parameter)) {
        places.push_back(fmt::format("    \"{}\": \"{}\"", tensor.name, names[i]));
      }
    }
  }
  std::ofstream file(path, std::ios::binary);
  file << fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{\n{}\n  }}\n}}\n", num_bytes,
                      fmt::join(places, ",\n"));
  file.close();
  if (!file) return fail(ErrorCode::kFailedPrecondition, fmt::format("cannot write {}", path.string()));
  return {};
}

}  // namespace

const std::string_view kTinyConfig = R"({
  "architectures": ["DeepseekV41ForCausalLM"],
  "model_type": "deepseek_v41",
  "dtype": "bfloat16",
  "bos_token_id": 0,
  "eos_token_id": 1,
  "pad_token_id": 2,
  "image_token_id": 281,
  "quantization_config": {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4"
  },
  "text_config": {
    "model_type": "deepseek_v41_text",
    "vocab_size": 288,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 256,
    "o_lora_rank": 256,
    "o_groups": 2,
    "hidden_act": "silu",
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20,
    "attention_bias": false,
    "tie_word_embeddings": false,
    "max_position_embeddings": 1048576,
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "rope_scaling": {
      "type": "yarn",
      "factor": 16,
      "beta_fast": 32,
      "beta_slow": 1,
      "original_max_position_embeddings": 65536
    },
    "moe_intermediate_size": 256,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": true,
    "routed_scaling_factor": 1.5,
    "sliding_window": 16,
    "compress_ratios": [0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4],
    "index_source_layer_ids": [2, 4, 6],
    "index_n_heads": 16,
    "index_head_dim": 128,
    "index_topk": 16,
    "candidate_source_layer_id": 4,
    "candidate_topk_blocks": 4,
    "candidate_block_size": 8,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_layer_ids": [1, 3],
    "engram_max_ngram_size": 4,
    "engram_vocab_size": 1000,
    "engram_n_heads": 8,
    "engram_head_dim": 32,
    "engram_pad_token_id": 2,
    "num_nextn_predict_layers": 3,
    "dspark_block_size": 5,
    "dspark_noise_token_id": 280,
    "dspark_target_layer_ids": [5, 6, 7],
    "dspark_markov_rank": 64,
    "dspark_n_routed_experts": 4,
    "dspark_num_experts_per_tok": 2
  }
}
)";

Status write_tiny_weights(const Config& config, std::uint64_t seed, const std::string& folder) {
  const std::vector<Shard> shards = divide(config);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
  }
  const std::filesystem::path path(folder);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (Status status = write_shard(shards[i], seed, (path / names[i]).string()); !status) return status;
  }
  return write_index(shards, names, path / "model.safetensors.index.json");
}

}  // namespace thalweg::models::deepseek_v41
