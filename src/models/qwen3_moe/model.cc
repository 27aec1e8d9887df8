#include "models/qwen3_moe/model.h"

#include <utility>

#include "models/qwen3_moe/config.h"
#include "models/qwen3_moe/weights.h"

namespace thalweg::models::qwen3_moe {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  PreNormWeights weights = load_weights(reader, *config);
  return make_pre_norm_decoder("qwen3_moe", config->decoder, std::move(config->rope), std::move(weights), reader,
                               options);
}

}  // namespace thalweg::models::qwen3_moe
