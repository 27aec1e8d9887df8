#include "models/deepseek_v3/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "layers/token_rows.h"
#include "models/activations.h"
#include "models/decoder_info.h"
#include "models/deepseek_v3/cache_layout.h"
#include "models/deepseek_v3/config.h"
#include "models/deepseek_v3/weights.h"
#include "models/kv_layers.h"
#include "models/plain_format.h"
#include "models/tensor_names.h"

namespace thalweg::models::deepseek_v3 {
namespace {

/// Tokens whose queries are held at a time: absorbed ones are wide, 295 KB a token in DeepSeek-V3.
constexpr std::int64_t kQueryTokens = 64;

device::Buffer floats(std::int64_t count) { return device::Buffer(static_cast<std::size_t>(count) * sizeof(float)); }

/// fp32 memory of a step, taken once for the largest.
struct Buffers {
  Buffers() = default;
  Buffers(std::int64_t max_tokens, const Config& config)
      : hidden(floats(max_tokens * config.decoder.hidden_size)),
        normed(floats(max_tokens * config.decoder.hidden_size)),
        rotary(rotary_buffer(max_tokens, config.attention.rope_dim)),
        rows(floats(max_tokens * std::max(config.attention.row_dim(), config.index.head_dim))),
        inner(floats(max_tokens * std::max<std::int64_t>(config.decoder.intermediate_size, config.shared_size()))),
        bottleneck(floats(kQueryTokens * config.attention.q_lora_rank)),
        q(floats(kQueryTokens * std::max(config.attention.q_size(), config.attention.value_size()))),
        absorbed(floats(kQueryTokens * config.attention.num_heads * config.attention.row_dim())),
        latents(floats(kQueryTokens * config.attention.num_heads * config.attention.kv_lora_rank)),
        index_q(floats(kQueryTokens * config.index.num_heads * config.index.head_dim)),
        index_weights(floats(kQueryTokens * config.index.num_heads)),
        lists(static_cast<std::size_t>(kQueryTokens * config.index.top_k) * sizeof(std::int32_t)) {}

  device::Buffer hidden;      // the residual stream, [max_tokens, hidden_size]
  device::Buffer normed;      // input of the next part, [max_tokens, hidden_size]
  device::Buffer rotary;      // cosines and sines, [max_tokens, rope_dim]
  device::Buffer rows;        // on their way into the cache, [max_tokens, row_dim or index dim]
  device::Buffer inner;       // [max_tokens, intermediate_size]
  device::Buffer bottleneck;  // [kQueryTokens, q_lora_rank]
  device::Buffer q;           // [kQueryTokens, q_size], later the values of the heads
  device::Buffer absorbed;    // [kQueryTokens, num_heads, row_dim]
  device::Buffer latents;     // [kQueryTokens, num_heads, kv_lora_rank]
  device::Buffer index_q;     // [kQueryTokens, index heads, index dim]
  device::Buffer index_weights;
  device::Buffer lists;  // int32 [kQueryTokens, top_k]
};

class DeepseekV3 final : public Model {
 public:
  DeepseekV3(ModelInfo info, Config config, Weights weights, const CacheLayout& layout)
      : info_(std::move(info)), config_(std::move(config)), weights_(std::move(weights)), layout_(layout) {}

  const ModelInfo& info() const override { return info_; }

  void reserve(std::int32_t max_num_batched_tokens) override {
    max_tokens_ = max_num_batched_tokens;
    buffers_ = {max_num_batched_tokens, config_};
    moe_scratch_ = {max_num_batched_tokens, config_.experts};
  }

  void forward(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache, float* logits) override {
    CHECK_LE(batch.num_tokens(), max_tokens_);
    float* hidden = buffers_.hidden.as<float>();
    float* normed = buffers_.normed.as<float>();
    rows_.begin(paged_batch(batch));

    layers::embed(stream, weights_.vocabulary, batch.token_ids, 1.0F, hidden);
    kernels::rope_table(stream, config_.rope.frequencies, batch.positions, buffers_.rotary.as<float>());

    for (std::int32_t l = 0; l < info_.num_layers; ++l) {
      const Block& block = weights_.blocks[static_cast<std::size_t>(l)];
      layers::norm(stream, block.attention_norm, rows_.count(), hidden, normed);
      write_cache(stream, block, cache, l);
      // The cache is complete now; what follows matters only for tokens whose logits are wanted.
      if (l + 1 == info_.num_layers) {
        rows_.keep(batch.logit_tokens, {{hidden, info_.hidden_size},
                                        {normed, info_.hidden_size},
                                        {buffers_.rotary.as<float>(), config_.attention.rope_dim}});
      }
      for (std::int64_t first = 0; first < rows_.count(); first += kQueryTokens) {
        attend(stream, block, cache, l, first, std::min(kQueryTokens, rows_.count() - first));
      }
      layers::norm(stream, block.feed_forward_norm, rows_.count(), hidden, normed);
      feed_forward(stream, block);
      show_layer(l, rows_.count(), hidden);
    }

    layers::norm(stream, weights_.final_norm, rows_.count(), hidden, normed);
    layers::unembed(stream, weights_.vocabulary, rows_.count(), normed, logits);
  }

 private:
  void write_cache(device::Stream& stream, const Block& block, const CacheMemory& cache, std::int32_t layer) {
    const float* normed = buffers_.normed.as<float>();
    const float* rotary = buffers_.rotary.as<float>();
    float* rows = buffers_.rows.as<float>();
    write_latents(stream, block.attention, layout_.latents(cache, layer), rows_.batch(), normed, rotary, rows);
    if (block.indexer) {
      write_index_keys(stream, *block.indexer, layout_.index_keys(cache, layer), rows_.batch(), normed, rotary, rows);
    }
  }

  /// Tokens [first, first + count): from `normed` to their share of `hidden`.
  void attend(device::Stream& stream, const Block& block, const CacheMemory& cache, std::int32_t layer,
              std::int64_t first, std::int64_t count) {
    const Mla& attention = block.attention;
    const kernels::PagedBatch batch = part_of_batch(first, count);
    const float* x = buffers_.normed.as<float>() + first * info_.hidden_size;
    const float* rotary = buffers_.rotary.as<float>() + first * config_.attention.rope_dim;
    float* q = buffers_.q.as<float>();
    float* absorbed = buffers_.absorbed.as<float>();
    float* latents = buffers_.latents.as<float>();
    const float* input = query_input(stream, attention, count, x, buffers_.bottleneck.as<float>());
    absorbed_queries(stream, attention, count, input, rotary, q, absorbed);
    auto* lists = block.indexer ? buffers_.lists.as<std::int32_t>() : nullptr;
    if (block.indexer) {
      choose_tokens(stream, *block.indexer, layout_.index_keys(cache, layer),
                    {.batch = batch,
                     .x = x,
                     .query_input = input,
                     .cos_sin = rotary,
                     .num_visible = num_visible_,
                     .q = buffers_.index_q.as<float>(),
                     .head_weights = buffers_.index_weights.as<float>(),
                     .lists = lists});
    }
    kernels::latent_attention(stream, {.q = absorbed,
                                       .num_heads = config_.attention.num_heads,
                                       .value_dim = config_.attention.kv_lora_rank,
                                       .scale = attention.scale,
                                       .batch = batch,
                                       .cache = layout_.latents(cache, layer),
                                       .num_visible = num_visible_,
                                       .lists = lists,
                                       .max_list = config_.index.top_k,
                                       .out = latents});
    add_output(stream, attention, count, latents, q, buffers_.hidden.as<float>() + first * info_.hidden_size);
  }

  /// The batch without the tokens outside [first, first + count); sets what each of them sees.
  kernels::PagedBatch part_of_batch(std::int64_t first, std::int64_t count) {
    kernels::PagedBatch part = rows_.batch();
    part.positions = part.positions.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    cu_seqlens_.clear();
    for (const std::int32_t begin : rows_.batch().cu_seqlens) {
      cu_seqlens_.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(begin - first, 0, count)));
    }
    part.cu_seqlens = cu_seqlens_;
    num_visible_.clear();
    for (const std::int32_t position : part.positions) num_visible_.push_back(position + 1);
    return part;
  }

  void feed_forward(device::Stream& stream, const Block& block) {
    float* hidden = buffers_.hidden.as<float>();
    float* normed = buffers_.normed.as<float>();
    float* inner = buffers_.inner.as<float>();
    if (const auto* mlp = std::get_if<layers::GatedMlp>(&block.feed_forward)) {
      layers::gated_mlp(stream, *mlp, rows_.count(), normed, inner, kernels::Epilogue::kAccumulate, hidden);
    } else {
      balanced_moe(stream, std::get<BalancedMoe>(block.feed_forward), rows_.count(), normed, moe_scratch_, inner,
                   hidden);
    }
  }

  ModelInfo info_;
  Config config_;
  Weights weights_;
  CacheLayout layout_;
  std::int64_t max_tokens_ = 0;
  Buffers buffers_;
  layers::MoeScratch moe_scratch_;
  layers::TokenRows rows_;
  std::vector<std::int32_t> cu_seqlens_;   // of the part of the batch whose queries are at hand
  std::vector<std::int32_t> num_visible_;  // of its tokens
};

}  // namespace

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  Weights weights = load_weights(reader, stream, *config);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  std::vector<std::string> left_out;  // layers that predict further tokens
  for (std::int32_t i = 0; i < config->num_mtp_layers; ++i) {
    left_out.push_back(TensorNames(checkpoint).block(config->decoder.num_layers + i, "", ""));
  }
  const std::vector<std::string_view> expected(left_out.begin(), left_out.end());
  warn_about_unused(reader, expected);

  const CacheLayout layout{.num_layers = config->decoder.num_layers,
                           .block_size = options.block_size,
                           .row_dim = config->attention.row_dim(),
                           .index_dim = config->index.head_dim,
                           .format = plain_format(options.kv_dtype)};
  const char* name = config->index.top_k > 0 ? "deepseek_v32" : "deepseek_v3";
  ModelInfo info = describe_decoder(name, config->decoder, config->rope.max_position, layout.spec(), reader);
  return std::make_unique<DeepseekV3>(std::move(info), std::move(*config), std::move(weights), layout);
}

}  // namespace thalweg::models::deepseek_v3
