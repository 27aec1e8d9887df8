#include "models/decoder_info.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "weights/printable.h"

namespace thalweg::models {

KvLayers make_kv_layers(const DecoderConfig& config, const LoadOptions& options) {
  return {.layout = {.num_kv_heads = config.num_kv_heads,
                     .head_dim = config.head_dim,
                     .block_size = options.block_size,
                     .dtype = options.kv_dtype},
          .num_layers = config.num_layers};
}

ModelInfo describe_decoder(std::string architecture, const DecoderConfig& config, std::int32_t max_position,
                           const kv_cache::CacheSpec& cache, const layers::WeightReader& reader) {
  return {.architecture = std::move(architecture),
          .vocab_size = config.vocab_size,
          .max_position = max_position,
          .num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .num_parameters = reader.num_parameters(),
          .weight_bytes = reader.packed_bytes(),
          .cache = cache};
}

void warn_about_unused(const layers::WeightReader& reader, std::span<const std::string_view> expected) {
  constexpr std::size_t kMaxNamed = 8;
  std::vector<std::string> unused = reader.unused();
  std::erase_if(unused, [&](const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") ||
           std::ranges::any_of(expected, [&](std::string_view prefix) { return name.starts_with(prefix); });
  });
  if (unused.empty()) return;
  const std::size_t num_named = std::min(unused.size(), kMaxNamed);
  std::ranges::transform(unused, unused.begin(), [](const std::string& name) { return weights::printable(name); });
  log(LogLevel::kWarning, "{}: {} tensors are not used by this architecture: {}{}", reader.checkpoint().path(),
      unused.size(), fmt::join(unused.begin(), unused.begin() + static_cast<std::ptrdiff_t>(num_named), ", "),
      unused.size() > num_named ? ", ..." : "");
}

}  // namespace thalweg::models
