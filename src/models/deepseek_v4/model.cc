#include "models/deepseek_v4/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/thread_pool.h"
#include "layers/token_rows.h"
#include "models/decoder_info.h"
#include "models/deepseek_v4/attention.h"
#include "models/deepseek_v4/cache_layout.h"
#include "models/deepseek_v4/config.h"
#include "models/deepseek_v4/experts.h"
#include "models/deepseek_v4/weights.h"
#include "models/kv_layers.h"

namespace thalweg::models::deepseek_v4 {
namespace {

device::Buffer floats(std::int64_t count) { return device::Buffer(static_cast<std::size_t>(count) * sizeof(float)); }

/// Per token: the streams, what goes through a sublayer, and the weights between the two.
struct Buffers {
  Buffers() = default;
  Buffers(std::int64_t max_tokens, const kernels::MhcShape& shape)
      : streams(floats(max_tokens * shape.num_streams * shape.hidden_size)),
        hidden(floats(max_tokens * shape.hidden_size)),
        sublayer(floats(max_tokens * shape.hidden_size)),
        pre(floats(max_tokens * shape.num_streams)),
        post(floats(max_tokens * shape.num_streams)),
        comb(floats(max_tokens * shape.num_streams * shape.num_streams)) {}

  device::Buffer streams;   // [max_tokens, num_streams, hidden_size]
  device::Buffer hidden;    // [max_tokens, hidden_size]
  device::Buffer sublayer;  // [max_tokens, hidden_size]
  device::Buffer pre;       // [max_tokens, num_streams]
  device::Buffer post;      // the same
  device::Buffer comb;      // [max_tokens, num_streams, num_streams]
};

class DeepseekV4 final : public Model {
 public:
  DeepseekV4(ModelInfo info, Config config, Weights weights, const CacheLayout& layout)
      : info_(std::move(info)), config_(std::move(config)), weights_(std::move(weights)), layout_(layout) {}

  const ModelInfo& info() const override { return info_; }

  void reserve(std::int32_t max_num_batched_tokens) override {
    max_tokens_ = max_num_batched_tokens;
    buffers_ = {max_tokens_, config_.mhc};
    attention_scratch_ = {max_tokens_, config_, layout_};
    moe_scratch_ = {max_tokens_, config_.experts};
    const std::int32_t rope_dim = config_.attention.rope_dim;
    window_rotation_.reserve(max_tokens_, rope_dim);
    compressed_rotation_.reserve(max_tokens_, rope_dim);
    sparse_groups_.reserve(max_tokens_, kSparseRatio, rope_dim);
    heavy_groups_.reserve(max_tokens_, kHeavyRatio, rope_dim);
  }

  void forward(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache, float* logits) override {
    CHECK_LE(batch.num_tokens(), max_tokens_);
    window_rotation_.begin(stream, config_.window_rope.frequencies, batch.positions);
    compressed_rotation_.begin(stream, config_.compressed_rope.frequencies, batch.positions);
    sparse_groups_.begin(stream, batch, config_.compressed_rope.frequencies);
    heavy_groups_.begin(stream, batch, config_.compressed_rope.frequencies);

    begin_streams(stream, batch);
    for (std::int32_t l = 0; l < info_.num_layers; ++l) {
      const BlockWeights& block = weights_.blocks[static_cast<std::size_t>(l)];
      sublayer(stream, block.attention_mix, block.attention_norm, batch.num_tokens(),
               [&](const float* x, float* out) { attend(stream, block, l, batch, cache, x, out); });
      sublayer(stream, block.feed_forward_mix, block.feed_forward_norm, batch.num_tokens(),
               [&](const float* x, float* out) {
                 experts(stream, config_, block.experts, batch.token_ids, x, moe_scratch_, out);
               });
      show(fmt::format("layers.{}.X", l), batch.num_tokens(), config_.mhc.num_streams * info_.hidden_size,
           buffers_.streams.as<float>());
    }
    compute_logits(stream, batch, logits);
  }

 private:
  void begin_streams(device::Stream& stream, const step::BatchView& batch) {
    const std::int64_t size = info_.hidden_size;
    const float* hidden = buffers_.hidden.as<float>();
    layers::embed(stream, weights_.vocabulary, batch.token_ids, 1.0F, buffers_.hidden.as<float>());
    stream.threads->parallel_for(batch.num_tokens(), [&](std::int64_t token, int) {
      for (std::int32_t s = 0; s < config_.mhc.num_streams; ++s) {
        std::copy_n(hidden + token * size, size,
                    buffers_.streams.as<float>() + (token * config_.mhc.num_streams + s) * size);
      }
    });
  }

  /// Streams are collapsed to the input of `body(x, out)` and its result is spread over them again, mixed.
  template <typename Body>
  void sublayer(device::Stream& stream, const MixWeights& mix, const layers::Norm& norm, std::int64_t num_tokens,
                Body body) {
    float* streams = buffers_.streams.as<float>();
    float* hidden = buffers_.hidden.as<float>();
    float* out = buffers_.sublayer.as<float>();
    float* pre = buffers_.pre.as<float>();
    float* post = buffers_.post.as<float>();
    float* comb = buffers_.comb.as<float>();
    kernels::mhc_mix(stream, config_.mhc, mix.view(), num_tokens, streams, pre, post, comb);
    kernels::mhc_collapse(stream, config_.mhc, num_tokens, streams, pre, false, hidden);
    layers::norm(stream, norm, num_tokens, hidden, hidden);
    body(hidden, out);
    kernels::mhc_expand(stream, config_.mhc, num_tokens, out, post, comb, false, streams);
  }

  void attend(device::Stream& stream, const BlockWeights& block, std::int32_t layer, const step::BatchView& batch,
              const CacheMemory& cache, const float* x, float* out) {
    const Compression compression = config_.compression[static_cast<std::size_t>(layer)];
    const bool is_compressed = compression != Compression::kNone;
    attention(stream,
              {.config = &config_,
               .layout = &layout_,
               .weights = &block.attention,
               .layer = layer,
               .batch = &batch,
               .cache = &cache,
               .rotation = is_compressed ? &compressed_rotation_ : &window_rotation_,
               .groups = compression == Compression::kSparse  ? &sparse_groups_
                         : compression == Compression::kHeavy ? &heavy_groups_
                                                              : nullptr,
               .x = x,
               .out = out},
              attention_scratch_);
  }

  void compute_logits(device::Stream& stream, const step::BatchView& batch, float* logits) {
    float* streams = buffers_.streams.as<float>();
    float* hidden = buffers_.hidden.as<float>();
    float* pre = buffers_.pre.as<float>();
    rows_.begin(paged_batch(batch));
    rows_.keep(batch.logit_tokens, {{streams, config_.mhc.num_streams * std::int64_t{info_.hidden_size}}});
    kernels::mhc_head_mix(stream, config_.mhc, weights_.head_mix.view(), rows_.count(), streams, pre);
    kernels::mhc_collapse(stream, config_.mhc, rows_.count(), streams, pre, false, hidden);
    layers::norm(stream, weights_.norm, rows_.count(), hidden, hidden);
    layers::unembed(stream, weights_.vocabulary, rows_.count(), hidden, logits);
  }

  ModelInfo info_;
  Config config_;
  Weights weights_;
  CacheLayout layout_;
  std::int64_t max_tokens_ = 0;
  Buffers buffers_;
  AttentionScratch attention_scratch_;
  layers::MoeScratch moe_scratch_;
  Rotation window_rotation_;
  Rotation compressed_rotation_;
  CompletedGroups sparse_groups_;
  CompletedGroups heavy_groups_;
  layers::TokenRows rows_;
};

/// Layers that predict further tokens.
constexpr std::array<std::string_view, 1> kLeftOut = {"mtp."};

}  // namespace

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  Weights weights = load_weights(reader, *config);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  if (Status status = check_expert_tables(weights, *config, checkpoint.path()); !status) {
    return std::unexpected(status.error());
  }
  warn_about_unused(reader, kLeftOut);

  const CacheLayout layout(*config, options);
  ModelInfo info =
      describe_decoder("deepseek_v4", config->decoder, config->compressed_rope.max_position, layout.spec(), reader);
  return std::make_unique<DeepseekV4>(std::move(info), std::move(*config), std::move(weights), layout);
}

}  // namespace thalweg::models::deepseek_v4
