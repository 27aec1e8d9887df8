#include "models/gemma3/model.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "layers/token_rows.h"
#include "models/activations.h"
#include "models/decoder_info.h"
#include "models/gemma3/config.h"
#include "models/gemma3/weights.h"
#include "models/kv_layers.h"

namespace thalweg::models::gemma3 {
namespace {

class Gemma3 final : public Model {
 public:
  Gemma3(ModelInfo info, Config config, Weights weights, const KvLayers& kv)
      : info_(std::move(info)), config_(std::move(config)), weights_(std::move(weights)), kv_(kv) {}

  const ModelInfo& info() const override { return info_; }

  void reserve(std::int32_t max_num_batched_tokens) override {
    activations_ = {max_num_batched_tokens, config_.decoder.attention_shape(), config_.decoder.intermediate_size};
    global_rotary_ = rotary_buffer(max_num_batched_tokens, config_.decoder.head_dim);
    local_rotary_ = rotary_buffer(max_num_batched_tokens, config_.decoder.head_dim);
  }

  void forward(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache, float* logits) override {
    activations_.check_room(batch);
    float* hidden = activations_.hidden();
    float* normed = activations_.normed();
    rows_.begin(paged_batch(batch));

    layers::embed(stream, weights_.vocabulary, batch.token_ids, std::sqrt(static_cast<float>(info_.hidden_size)),
                  hidden);
    kernels::rope_table(stream, config_.global_rope.frequencies, batch.positions, global_rotary_.as<float>());
    kernels::rope_table(stream, config_.local_rope.frequencies, batch.positions, local_rotary_.as<float>());

    for (std::int32_t l = 0; l < info_.num_layers; ++l) {
      const Block& block = weights_.blocks[static_cast<std::size_t>(l)];
      const bool is_last = l + 1 == info_.num_layers;

      layers::norm(stream, block.attention_norm, rows_.count(), hidden, normed);
      attention(stream, block.attention, kv_.layer(cache, l), is_last, batch.logit_tokens);
      layers::add_norm(stream, block.post_attention_norm, rows_.count(), normed, hidden);

      layers::norm(stream, block.mlp_norm, rows_.count(), hidden, normed);
      layers::gated_mlp(stream, block.mlp, rows_.count(), normed, activations_.inner(), kernels::Epilogue::kStore,
                        normed);
      layers::add_norm(stream, block.post_mlp_norm, rows_.count(), normed, hidden);
      show_layer(l, rows_.count(), hidden);
    }

    layers::norm(stream, weights_.final_norm, rows_.count(), hidden, normed);
    layers::unembed(stream, weights_.vocabulary, rows_.count(), normed, logits);
  }

 private:
  /// From `normed` to `normed`.
  void attention(device::Stream& stream, const layers::Attention& layer, const kernels::PagedKv& kv, bool is_last,
                 std::span<const std::int32_t> logit_tokens) {
    float* qkv = activations_.qkv();
    float* attended = activations_.attended();
    const device::Buffer& rotary = layer.window > 0 ? local_rotary_ : global_rotary_;
    layers::project_qkv(stream, layer, kv, rows_.batch(), activations_.normed(), rotary.as<float>(), qkv);
    // All keys and values are in the cache now; what follows matters only for tokens whose logits are wanted.
    if (is_last) {
      rows_.keep(logit_tokens, {{activations_.hidden(), info_.hidden_size}, {qkv, layer.shape.qkv_size()}});
    }
    layers::attend(stream, layer, kv, rows_.batch(), qkv, attended);
    layers::project_out(stream, layer, rows_.count(), attended, kernels::Epilogue::kStore, activations_.normed());
  }

  ModelInfo info_;
  Config config_;
  Weights weights_;
  KvLayers kv_;
  Activations activations_;
  device::Buffer global_rotary_;  // cosines and sines of the step's positions, [max_tokens, head_dim]
  device::Buffer local_rotary_;
  layers::TokenRows rows_;
};

/// The image half of multimodal checkpoints.
constexpr std::array<std::string_view, 4> kVisionTensors = {"vision_tower.", "multi_modal_projector.",
                                                            "model.vision_tower.", "model.multi_modal_projector."};

}  // namespace

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  Weights weights = load_weights(reader, *config);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  warn_about_unused(reader, kVisionTensors);

  const KvLayers kv = make_kv_layers(config->decoder, options);
  ModelInfo info = describe_decoder("gemma3", config->decoder, config->global_rope.max_position, kv.spec(), reader);
  return std::make_unique<Gemma3>(std::move(info), std::move(*config), std::move(weights), kv);
}

}  // namespace thalweg::models::gemma3
