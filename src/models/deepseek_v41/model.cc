#include "models/deepseek_v41/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "models/decoder_info.h"
#include "models/deepseek_v41/backbone.h"
#include "models/deepseek_v41/dspark.h"
#include "weights/deepseek_names.h"

namespace thalweg::models::deepseek_v41 {
namespace {

constexpr const char* kClassesFile = "engram_token_map.i32";

class DeepseekV41 final : public Model {
 public:
  DeepseekV41(ModelInfo info, Config config, Weights weights, const CacheLayout& layout, Rounding rounding,
              std::vector<std::int32_t> classes)
      : info_(std::move(info)),
        config_(std::move(config)),
        weights_(std::move(weights)),
        layout_(layout),
        backbone_(config_, weights_, layout_, rounding, std::move(classes)) {
    if (!weights_.dspark) return;
    dspark_.emplace(config_, weights_, layout_, backbone_.frequencies(), rounding);
    dspark_->set_tap(tap());
  }

  const ModelInfo& info() const override { return info_; }
  void reserve(std::int32_t max_num_batched_tokens) override {
    max_tokens_ = max_num_batched_tokens;
    backbone_.reserve(max_num_batched_tokens);
  }
  DraftModel* draft_model() override { return dspark_ ? &*dspark_ : nullptr; }

  void forward(device::Stream& stream, const step::BatchView& batch, const CacheMemory& cache, float* logits) override {
    CHECK_LE(batch.num_tokens(), max_tokens_);
    backbone_.begin(stream, batch, cache, tap());
    for (std::int32_t l = 0; l < config_.num_layers; ++l) backbone_.layer(l);
    // Before the logits, which take the streams apart.
    if (dspark_) dspark_->remember(backbone_);
    backbone_.logits(logits);
  }

 private:
  const ModelInfo info_;
  const Config config_;
  const Weights weights_;
  const CacheLayout layout_;
  Backbone backbone_;
  std::optional<Dspark> dspark_;
  std::int32_t max_tokens_ = 0;
};

/// From a file beside the weights, or from the tokenizer (section 5.1).
Result<std::vector<std::int32_t>> token_classes(const Config& config, const weights::Checkpoint& checkpoint,
                                                const LoadOptions& options) {
  const std::filesystem::path path = std::filesystem::path(checkpoint.path()) / kClassesFile;
  std::vector<std::int32_t> classes;
  if (std::filesystem::exists(path)) {
    Result<MappedFile> file = MappedFile::open(path.string());
    if (!file) return std::unexpected(file.error());
    classes.resize(file->bytes().size() / sizeof(std::int32_t));
    std::memcpy(classes.data(), file->bytes().data(), classes.size() * sizeof(std::int32_t));
  } else if (options.token_classes) {
    Result<std::vector<std::int32_t>> made = options.token_classes();
    if (!made) return std::unexpected(made.error());
    classes = std::move(*made);
  } else {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: Engram tables need the classes of token ids: neither {} nor a tokenizer is there",
                            checkpoint.path(), kClassesFile));
  }
  if (static_cast<std::int32_t>(classes.size()) != config.vocab_size) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: classes for {} token ids, needed vocab_size, which is {}",
                                                         path.string(), classes.size(), config.vocab_size));
  }
  const std::int32_t num_classes = *std::ranges::max_element(classes) + 1;
  const std::int32_t needed = config.engram.hash.compressed_vocab_size;
  if (num_classes != needed || std::ranges::min(classes) < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: token ids fall into {} classes, but engram_compressed_vocab_size is {}: tokenizer and "
                            "tables do not belong together",
                            checkpoint.path(), num_classes, needed));
  }
  return classes;
}

/// The tables must have the rows that the hashes lead to.
Status check_tables(const Config& config) {
  const std::vector<kernels::EngramHash> hashes = kernels::make_engram_hashes(config.engram.hash);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i].num_rows() == config.engram.num_rows[i]) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("engram_num_embeddings[{}] is {}, needed {}, as engram_vocab_size and engram_n_heads make it", i,
                    config.engram.num_rows[i], hashes[i].num_rows()));
  }
  return {};
}

Status check_options(const Config& config, const LoadOptions& options) {
  for (const std::int32_t ratio : config.index.compress_ratios) {
    if (ratio == 0 || options.block_size % ratio == 0) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("block_size is {}, needed a multiple of the compress ratio {}", options.block_size, ratio));
  }
  if (options.prefill_tail_tokens > 0 && options.prefill_tail_tokens < config.window) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("replay of {} tokens is shorter than the window of {}: the last token would miss rows",
                            options.prefill_tail_tokens, config.window));
  }
  if (options.loads_draft_model && config.dspark.num_stages == 0) {
    return fail(ErrorCode::kInvalidArgument, "num_nextn_predict_layers is 0: this checkpoint has no draft model");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  if (Status status = check_options(*config, options); !status) return std::unexpected(status.error());
  std::vector<std::int32_t> classes;
  if (!config->engram.hash.layer_ids.empty()) {
    if (Status status = check_tables(*config); !status) return std::unexpected(status.error());
    Result<std::vector<std::int32_t>> made = token_classes(*config, checkpoint, options);
    if (!made) return std::unexpected(made.error());
    classes = std::move(*made);
  }

  layers::WeightReader reader(checkpoint, stream, options.progress, weights::deepseek_tensor_name);
  Weights weights = load_weights(reader, *config, options.loads_draft_model);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  warn_about_unused(reader, {});

  const CacheLayout layout(*config, options.block_size, std::max(options.max_draft_tokens, config->dspark.block_size),
                           options.loads_draft_model);
  ModelInfo info{.architecture = "deepseek_v41",
                 .vocab_size = config->vocab_size,
                 .max_position = config->max_position,
                 .num_layers = config->num_layers,
                 .hidden_size = config->hidden_size,
                 .num_parameters = reader.num_parameters(),
                 .weight_bytes = reader.packed_bytes(),
                 .prefill_tail_tokens = options.prefill_tail_tokens < 0 ? config->window : options.prefill_tail_tokens,
                 .cache = layout.spec()};
  if (options.replays_whole_hits) info.cache.replay_tokens = config->max_position;
  return std::make_unique<DeepseekV41>(std::move(info), std::move(*config), std::move(weights), layout,
                                       rounding_of(options.numerics), std::move(classes));
}

}  // namespace thalweg::models::deepseek_v41
