#include "models/qwen3_moe/model.h"

#include <utility>

#include "models/decoder_info.h"
#include "models/qwen3_moe/config.h"
#include "models/qwen3_moe/weights.h"

namespace thalweg::models::qwen3_moe {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  PreNormWeights weights = load_weights(reader, *config);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  warn_about_unused(reader, {});

  const KvLayers kv = make_kv_layers(config->decoder, options);
  ModelInfo info = describe_decoder("qwen3_moe", config->decoder, config->rope.max_position, kv, reader);
  return make_pre_norm_decoder(std::move(info), config->decoder, std::move(config->rope.frequencies),
                               std::move(weights), kv);
}

}  // namespace thalweg::models::qwen3_moe
