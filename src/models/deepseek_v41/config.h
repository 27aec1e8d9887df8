// config.json of DeepSeek-V4.1 (DeepSeek-V4.1 specification, sections 1.1 and 1.2): every number comes from here.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/engram/engram.h"
#include "kernels/mhc/mhc.h"
#include "models/config_reader.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v41 {

struct RopeSettings {
  double theta = 10000.0;              // layers that see only their window
  double compressed_theta = 160000.0;  // all others, with YaRN
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::int32_t original_max_position = 65536;
};

struct ExpertSettings {
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
};

/// How layers share what is compressed. Layer l with a ratio reads the entries of the last kv source <= l and the list
/// of the last index source <= l.
struct IndexSettings {
  std::vector<std::int32_t> compress_ratios;  // [num_layers]; 0: window only, otherwise tokens per entry, 1 or 2
  std::vector<std::int32_t> kv_sources;       // layers that compress, rising
  std::vector<std::int32_t> index_sources;    // layers that choose, rising
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t top_k = 0;
  std::int32_t candidate_source = -1;  // layer whose best blocks later indexes are restricted to, or -1
  std::int32_t candidate_block_size = 1;
  std::int32_t max_candidate_blocks = 1;
};

struct EngramSettings {
  kernels::EngramConfig hash;
  std::int32_t pad_token_id = 0;
  std::int32_t head_dim = 0;
  std::vector<std::int64_t> num_rows;  // of each layer's table
};

struct DsparkSettings {
  std::int32_t num_stages = 0;  // 0: the checkpoint has no draft model
  std::int32_t block_size = 0;
  std::int32_t noise_token_id = 0;
  std::vector<std::int32_t> target_layers;  // whose inputs the draft model sees
  std::int32_t markov_rank = 0;
  ExpertSettings experts;
};

struct Config {
  std::int32_t vocab_size = 0;
  std::int32_t max_position = 0;
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t rope_dim = 0;  // the last channels of a head, and of an index head
  std::int32_t q_lora_rank = 0;
  std::int32_t num_output_groups = 0;
  std::int32_t output_lora_rank = 0;
  std::int32_t window = 0;
  std::int32_t intermediate_size = 0;  // of an expert
  float activation_limit = 0.0F;
  float routed_scale = 1.0F;
  float gate_temperature = 1.0F;
  float norm_epsilon = 0.0F;
  std::int32_t image_token_id = -1;
  ExpertSettings experts;
  kernels::MhcShape mhc;
  RopeSettings rope;
  IndexSettings index;
  EngramSettings engram;
  DsparkSettings dspark;

  /// The first layer of the half whose only long memory is what that layer compresses: the last kv source.
  std::int32_t decoder_begin() const { return index.kv_sources.back(); }
  std::int32_t rows_per_group() const { return num_heads / num_output_groups * head_dim; }
};

/// Fails with the field, the value found and the value needed when the configuration contradicts itself or asks for
/// what is not supported.
Result<Config> read_config(const weights::Checkpoint& checkpoint);

/// What a layer does besides attending to its window.
struct LayerRole {
  std::int32_t ratio = 0;         // tokens per compressed entry; 0: window only
  std::int32_t kv_owner = -1;     // layer whose entries it reads
  std::int32_t index_owner = -1;  // layer whose list it follows
  std::int32_t engram = -1;       // index of its table, or -1

  const char* name(std::int32_t layer) const;
};

std::vector<LayerRole> layer_roles(const Config& config);

}  // namespace thalweg::models::deepseek_v41
