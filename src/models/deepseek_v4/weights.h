// The tensors of DeepSeek-V4 as its layers use them, by the names DeepSeek publishes them under.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/mhc/mhc.h"
#include "layers/norm.h"
#include "layers/vocabulary.h"
#include "layers/weight_reader.h"
#include "models/deepseek_v4/config.h"
#include "thalweg/error.h"

namespace thalweg::models::deepseek_v4 {

/// Weights with which streams are collapsed, spread and mixed.
struct MixWeights {
  std::vector<float> fn, base, scale;
  kernels::MhcMix view() const { return {fn.data(), base.data(), scale.data()}; }
};

/// Turns each group of `ratio` tokens into one entry of `dim` channels.
struct CompressorWeights {
  std::int32_t ratio = 0;
  bool overlaps = false;  // a token also contributes to the next group's entry, through channels of its own
  std::int32_t dim = 0;
  kernels::LinearWeight value_gate;  // [2 * width, hidden_size]: values, then gates
  std::vector<float> position_bias;  // [ratio, width], added to the gates by place in the group
  layers::Norm norm;

  std::int64_t width() const { return overlaps ? 2 * std::int64_t{dim} : dim; }
};

struct IndexWeights {
  CompressorWeights compressor;        // of keys
  kernels::LinearWeight q;             // [num_heads * head_dim, q_lora_rank]
  kernels::LinearWeight head_weights;  // [num_heads, hidden_size]
};

struct AttentionWeights {
  kernels::LinearWeight q_down;
  layers::Norm q_norm;
  kernels::LinearWeight q_up;
  kernels::LinearWeight kv;
  layers::Norm kv_norm;
  std::vector<float> sinks;                  // [num_heads]
  std::vector<kernels::LinearWeight> out_a;  // per group, [output_lora_rank, group_size]
  kernels::LinearWeight out_b;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexWeights> index;
};

struct ExpertWeights {
  kernels::LinearWeight gate;
  std::vector<float> bias;                     // [num_experts], of the choice alone; empty: the token id chooses
  std::vector<std::int32_t> experts_of_token;  // [vocab_size, top_k]; empty: the gate chooses
  std::vector<kernels::LinearWeight> gate_up;  // per expert, rows interleaved
  std::vector<kernels::LinearWeight> down;
  std::vector<kernels::LinearWeight> shared_gate_up;  // of one expert
  std::vector<kernels::LinearWeight> shared_down;
};

struct BlockWeights {
  MixWeights attention_mix;
  layers::Norm attention_norm;
  AttentionWeights attention;
  MixWeights feed_forward_mix;
  layers::Norm feed_forward_norm;
  ExpertWeights experts;
};

struct Weights {
  layers::Vocabulary vocabulary;
  std::vector<BlockWeights> blocks;
  MixWeights head_mix;
  layers::Norm norm;
};

/// Problems stay with `reader`.
Weights load_weights(layers::WeightReader& reader, const Config& config);

/// Experts named by token tables exist. `path` is the checkpoint's.
Status check_expert_tables(const Weights& weights, const Config& config, const std::string& path);

}  // namespace thalweg::models::deepseek_v4
