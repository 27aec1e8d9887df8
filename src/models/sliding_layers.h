// Which layers of a model see only a window of the sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config_reader.h"

namespace thalweg::models {

/// Per layer the number of keys a query sees, 0 for all, from `layer_types` of a config.json. Empty when the
/// checkpoint has no such list.
std::vector<std::int32_t> read_layer_windows(ConfigReader& reader, std::int32_t num_layers, std::int32_t window);

/// Qwen: `use_sliding_window` turns windows on, for the layers that `layer_types` names or else from
/// `max_window_layers` on.
std::vector<std::int32_t> read_qwen_windows(ConfigReader& reader, std::int32_t num_layers);

}  // namespace thalweg::models
