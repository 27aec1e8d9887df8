// What a loaded decoder tells about itself.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "layers/weight_reader.h"
#include "models/decoder_config.h"
#include "models/kv_layers.h"
#include "models/load_options.h"
#include "models/model.h"

namespace thalweg::models {

KvLayers make_kv_layers(const DecoderConfig& config, const LoadOptions& options);

ModelInfo describe_decoder(std::string architecture, const DecoderConfig& config, std::int32_t max_position,
                           const kv_cache::CacheSpec& cache, const layers::WeightReader& reader);

/// Logs one line about tensors that the architecture does not use. `expected`: beginnings of names that are left out on
/// purpose, such as a vision tower.
void warn_about_unused(const layers::WeightReader& reader, std::span<const std::string_view> expected);

}  // namespace thalweg::models
