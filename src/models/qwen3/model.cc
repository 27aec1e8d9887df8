#include "models/qwen3/model.h"

#include <utility>

#include "models/qwen3/config.h"
#include "models/qwen3/weights.h"

namespace thalweg::models::qwen3 {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  PreNormWeights weights = load_weights(reader, *config);
  return make_pre_norm_decoder("qwen3", config->decoder, std::move(config->rope), std::move(weights), reader, options);
}

}  // namespace thalweg::models::qwen3
