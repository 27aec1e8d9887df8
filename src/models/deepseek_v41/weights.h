// The tensors of V4.1 as its layers use them (DeepSeek-V4.1 specification, appendix B).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/engram/engram.h"
#include "kernels/linear/linear.h"
#include "kernels/mhc/mhc.h"
#include "layers/norm.h"
#include "layers/vocabulary.h"
#include "layers/weight_reader.h"
#include "models/deepseek_v41/config.h"

namespace thalweg::models::deepseek_v41 {

struct MixWeights {
  std::vector<float> fn, base, scale;
  kernels::MhcMix view() const { return {fn.data(), base.data(), scale.data()}; }
};

struct CompressorWeights {
  kernels::LinearWeight value_gate;  // rows: head_dim values, then head_dim gates unless entries are single tokens
  layers::Norm norm;
  kernels::LinearWeight index_key;
  layers::Norm index_key_norm;
};

struct IndexWeights {
  kernels::LinearWeight query;
  kernels::LinearWeight head_weights;
};

struct AttentionWeights {
  kernels::LinearWeight q_down;
  layers::Norm q_norm;
  kernels::LinearWeight q_up;
  kernels::LinearWeight kv;
  layers::Norm kv_norm;
  std::vector<float> sinks;                  // [num_heads]
  std::vector<kernels::LinearWeight> out_a;  // per group
  kernels::LinearWeight out_b;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexWeights> index;
};

struct ExpertWeights {
  kernels::LinearWeight gate;
  std::vector<float> bias;
  std::vector<kernels::LinearWeight> gate_up;  // per routed expert, rows interleaved
  std::vector<kernels::LinearWeight> down;
  kernels::LinearWeight shared_gate_up;
  kernels::LinearWeight shared_down;
};

struct BlockWeights {
  MixWeights attention_mix;
  layers::Norm attention_norm;
  AttentionWeights attention;
  MixWeights feed_forward_mix;
  layers::Norm feed_forward_norm;
  ExpertWeights experts;
};

/// The table stays in the mapped file.
struct EngramWeights {
  kernels::EngramTable table;
  kernels::LinearWeight key_value;
  std::vector<float> q_weight, k_weight;  // [num_streams, hidden_size]
};

struct DsparkWeights {
  kernels::LinearWeight input;
  layers::Norm input_norm;
  std::vector<BlockWeights> stages;
  layers::Norm norm;
  kernels::LinearWeight markov_embedding;
  kernels::LinearWeight markov_head;
  std::vector<float> confidence;  // [hidden_size + markov_rank]
};

struct Weights {
  std::shared_ptr<const void> mapped_files;  // of the tables
  layers::Vocabulary vocabulary;
  std::vector<BlockWeights> blocks;
  std::vector<EngramWeights> engrams;
  layers::Norm norm;
  std::optional<DsparkWeights> dspark;
};

/// Problems stay with `reader`.
Weights load_weights(layers::WeightReader& reader, const Config& config, bool loads_draft_model);

}  // namespace thalweg::models::deepseek_v41
