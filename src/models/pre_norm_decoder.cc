#include "models/pre_norm_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "layers/token_rows.h"
#include "models/activations.h"
#include "models/decoder_info.h"
#include "models/kv_layers.h"

namespace thalweg::models {
namespace {

class PreNormDecoder final : public Model {
 public:
  PreNormDecoder(ModelInfo info, const DecoderConfig& config, kernels::RopeFrequencies frequencies,
                 PreNormWeights weights, const KvLayers& kv)
      : info_(std::move(info)),
        config_(config),
        frequencies_(std::move(frequencies)),
        weights_(std::move(weights)),
        kv_(kv) {}

  const ModelInfo& info() const override { return info_; }

  void reserve(std::int32_t max_num_batched_tokens) override {
    std::int64_t inner_size = 0;
    for (const PreNormBlock& block : weights_.blocks) {
      if (const auto* mlp = std::get_if<layers::GatedMlp>(&block.feed_forward)) {
        inner_size = std::max(inner_size, mlp->down.num_cols());
      } else {
        moe_scratch_ = {max_num_batched_tokens, std::get<layers::Moe>(block.feed_forward).shape};
      }
    }
    activations_ = {max_num_batched_tokens, config_.attention_shape(), inner_size};
    rotary_ = rotary_buffer(max_num_batched_tokens, config_.head_dim);
  }

  void forward(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache, float* logits) override {
    activations_.check_room(batch);
    float* hidden = activations_.hidden();
    float* normed = activations_.normed();
    rows_.begin(paged_batch(batch));

    layers::embed(stream, weights_.vocabulary, batch.token_ids, 1.0F, hidden);
    kernels::rope_table(stream, frequencies_, batch.positions, rotary_.as<float>());

    for (std::int32_t l = 0; l < info_.num_layers; ++l) {
      const PreNormBlock& block = weights_.blocks[static_cast<std::size_t>(l)];
      const bool is_last = l + 1 == info_.num_layers;

      layers::norm(stream, block.attention_norm, rows_.count(), hidden, normed);
      attention(stream, block.attention, kv_.layer(cache, l), is_last, batch.logit_tokens);

      layers::norm(stream, block.feed_forward_norm, rows_.count(), hidden, normed);
      feed_forward(stream, block);
      show_layer(l, rows_.count(), hidden);
    }

    layers::norm(stream, weights_.final_norm, rows_.count(), hidden, normed);
    layers::unembed(stream, weights_.vocabulary, rows_.count(), normed, logits);
  }

 private:
  void attention(device::Stream& stream, const layers::Attention& layer, const kernels::PagedKv& kv, bool is_last,
                 std::span<const std::int32_t> logit_tokens) {
    float* qkv = activations_.qkv();
    float* attended = activations_.attended();
    layers::project_qkv(stream, layer, kv, rows_.batch(), activations_.normed(), rotary_.as<float>(), qkv);
    // All keys and values are in the cache now; what follows matters only for tokens whose logits are wanted.
    if (is_last) {
      rows_.keep(logit_tokens, {{activations_.hidden(), info_.hidden_size}, {qkv, layer.shape.qkv_size()}});
    }
    layers::attend(stream, layer, kv, rows_.batch(), qkv, attended);
    layers::project_out(stream, layer, rows_.count(), attended, kernels::Epilogue::kAccumulate, activations_.hidden());
  }

  void feed_forward(device::Stream& stream, const PreNormBlock& block) {
    float* hidden = activations_.hidden();
    float* normed = activations_.normed();
    if (const auto* mlp = std::get_if<layers::GatedMlp>(&block.feed_forward)) {
      layers::gated_mlp(stream, *mlp, rows_.count(), normed, activations_.inner(), kernels::Epilogue::kAccumulate,
                        hidden);
    } else {
      layers::moe(stream, std::get<layers::Moe>(block.feed_forward), rows_.count(), normed, moe_scratch_, hidden);
    }
  }

  ModelInfo info_;
  DecoderConfig config_;
  kernels::RopeFrequencies frequencies_;
  PreNormWeights weights_;
  KvLayers kv_;
  Activations activations_;
  device::Buffer rotary_;  // cosines and sines of the step's positions, [max_tokens, head_dim]
  layers::MoeScratch moe_scratch_;
  layers::TokenRows rows_;
};

}  // namespace

PreNormWeights load_outer_weights(layers::WeightReader& reader, const TensorNames& names, const DecoderConfig& config) {
  PreNormWeights weights;
  weights.vocabulary = layers::load_vocabulary(reader, names.embedding(), config.tied_head ? "" : names.head(),
                                               config.vocab_size, config.hidden_size);
  weights.final_norm = layers::load_norm(reader, names.final_norm(), config.hidden_size, config.norm_epsilon);
  weights.blocks.reserve(static_cast<std::size_t>(config.num_layers));
  return weights;
}

PreNormBlock load_attention_half(layers::WeightReader& reader, const TensorNames& names, const DecoderConfig& config,
                                 const layers::AttentionFeatures& features, std::int32_t layer) {
  const auto norm = [&](std::string_view gguf, std::string_view hugging_face) {
    return layers::load_norm(reader, names.block(layer, gguf, hugging_face), config.hidden_size, config.norm_epsilon);
  };
  PreNormBlock block;
  block.attention_norm = norm("attn_norm", "input_layernorm");
  block.attention = layers::load_attention(reader, names.attention(layer), config.attention_shape(), features);
  block.attention.scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  block.feed_forward_norm = norm("ffn_norm", "post_attention_layernorm");
  return block;
}

Result<std::unique_ptr<Model>> make_pre_norm_decoder(std::string architecture, const DecoderConfig& config,
                                                     RopeConfig rope, PreNormWeights weights,
                                                     const layers::WeightReader& reader, const LoadOptions& options) {
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  warn_about_unused(reader, {});
  const KvLayers kv = make_kv_layers(config, options);
  ModelInfo info = describe_decoder(std::move(architecture), config, rope.max_position, kv.spec(), reader);
  return std::make_unique<PreNormDecoder>(std::move(info), config, std::move(rope.frequencies), std::move(weights), kv);
}

}  // namespace thalweg::models
