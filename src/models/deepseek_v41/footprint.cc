#include "models/deepseek_v41/footprint.h"

#include <fmt/format.h>

#include <unordered_map>

#include "weights/deepseek_names.h"

namespace thalweg::models::deepseek_v41 {
namespace {

bool divides(const Layout& layout, Split split) {
  if (split == Split::kNone) return false;
  return layout.divides_dense || split == Split::kExperts || split == Split::kTableRows;
}

std::string remainder_of(std::int64_t count, const char* what, const Layout& layout) {
  if (count % layout.num_ranks == 0) return {};
  return fmt::format("{} {} do not divide by {}", count, what, layout.num_ranks);
}

}  // namespace

std::int64_t Footprint::total() const {
  std::int64_t sum = 0;
  for (const auto& [key, num_bytes] : bytes) sum += num_bytes;
  return sum;
}

std::map<Part, std::int64_t> Footprint::parts() const {
  std::map<Part, std::int64_t> sums;
  for (const auto& [key, num_bytes] : bytes) sums[key.first] += num_bytes;
  return sums;
}

Footprint footprint(const std::vector<Parameter>& parameters) {
  Footprint found;
  for (const Parameter& parameter : parameters) {
    found.bytes[{parameter.part, parameter.split}] += stored_bytes(parameter);
  }
  return found;
}

Footprint footprint(const Config& config, const weights::Checkpoint& checkpoint) {
  std::unordered_map<std::string, std::pair<Part, Split>> places;
  for (const Parameter& parameter : inventory(config)) {
    for (StoredTensor& tensor : stored_tensors(parameter)) {
      places.emplace(std::move(tensor.name), std::pair(parameter.part, parameter.split));
    }
  }
  Footprint found;
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    const auto place = places.find(weights::deepseek_tensor_name(tensor.name));
    const auto key = place == places.end() ? std::pair(Part::kVision, Split::kNone) : place->second;
    found.bytes[key] += static_cast<std::int64_t>(tensor.num_bytes);
  }
  return found;
}

std::string obstacle(const Config& config, const Layout& layout) {
  std::string found = remainder_of(config.experts.num_experts, "experts", layout);
  if (found.empty() && config.dspark.num_stages > 0) {
    found = remainder_of(config.dspark.experts.num_experts, "draft experts", layout);
  }
  if (found.empty() && layout.divides_dense) {
    found = remainder_of(config.num_output_groups, "output groups", layout);
  }
  return found;
}

std::int64_t bytes_per_rank(const Footprint& footprint, const Layout& layout) {
  std::int64_t sum = 0;
  for (const auto& [key, num_bytes] : footprint.bytes) {
    const std::int64_t num_ranks = divides(layout, key.second) ? layout.num_ranks : 1;
    sum += (num_bytes + num_ranks - 1) / num_ranks;
  }
  return sum;
}

}  // namespace thalweg::models::deepseek_v41
