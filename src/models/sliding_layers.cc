#include "models/sliding_layers.h"

#include <fmt/format.h>

#include <string>

namespace thalweg::models {

std::vector<std::int32_t> read_layer_windows(ConfigReader& reader, std::int32_t num_layers, std::int32_t window) {
  const std::vector<std::string> types = reader.texts("layer_types");
  if (types.empty()) return {};
  if (types.size() != static_cast<std::size_t>(num_layers)) {
    reader.reject("layer_types", fmt::format("a list of {}", types.size()),
                  fmt::format("one per layer, {}", num_layers));
    return {};
  }
  std::vector<std::int32_t> windows;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader.unsupported("layer_types", fmt::format("'{}'", type), "full_attention, sliding_attention");
    }
    windows.push_back(type == "sliding_attention" ? window : 0);
  }
  return windows;
}

std::vector<std::int32_t> read_qwen_windows(ConfigReader& reader, std::int32_t num_layers) {
  std::vector<std::int32_t> windows(static_cast<std::size_t>(num_layers), 0);
  if (!reader.flag("use_sliding_window", false)) return windows;
  const std::int32_t window = reader.count("sliding_window", kMaxPosition, 4096);
  if (std::vector<std::int32_t> listed = read_layer_windows(reader, num_layers, window); !listed.empty()) return listed;
  const std::int32_t first = reader.count_or_zero("max_window_layers", kMaxLayers, 28);
  for (std::int32_t layer = first; layer < num_layers; ++layer) windows[static_cast<std::size_t>(layer)] = window;
  return windows;
}

}  // namespace thalweg::models
