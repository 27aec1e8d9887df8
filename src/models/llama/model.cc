#include "models/llama/model.h"

#include <utility>

#include "models/llama/config.h"
#include "models/llama/weights.h"

namespace thalweg::models::llama {

Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                    const LoadOptions& options) {
  Result<Config> config = read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  layers::WeightReader reader(checkpoint, stream, options.progress);
  PreNormWeights weights = load_weights(reader, *config);
  Status divisors = apply_rope_divisors(reader, config->rope.frequencies);
  if (Status status = reader.status(); !status) return std::unexpected(status.error());
  if (!divisors) return std::unexpected(divisors.error());
  return make_pre_norm_decoder("llama", config->decoder, std::move(config->rope), std::move(weights), reader, options);
}

}  // namespace thalweg::models::llama
