#include "weights/deepseek_names.h"

namespace thalweg::weights {
namespace {

void replace_part(std::string& name, std::string_view from, std::string_view to) {
  const std::size_t place = name.find(from);
  if (place != std::string::npos) name.replace(place, from.size(), to);
}

void replace_ending(std::string& name, std::string_view from, std::string_view to) {
  if (name.ends_with(from)) name.replace(name.size() - from.size(), from.size(), to);
}

}  // namespace

std::string deepseek_tensor_name(std::string_view stored) {
  constexpr std::string_view kBody = "model.";
  if (stored.starts_with(kBody)) stored.remove_prefix(kBody.size());
  std::string name(stored);
  if (!name.starts_with("layers.") && !name.starts_with("mtp.")) return name;  // the vision tower has an mlp, too
  replace_part(name, ".self_attn.", ".attn.");
  replace_part(name, ".mlp.", ".ffn.");
  replace_ending(name, ".weight_scale_inv", ".scale");
  replace_ending(name, ".e_score_correction_bias", ".bias");
  return name;
}

}  // namespace thalweg::weights
