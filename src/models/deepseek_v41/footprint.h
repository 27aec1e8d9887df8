// How many bytes a checkpoint takes, part by part, and what each rank of a layout would hold
// (DeepSeek-V4.1 specification, sections 6.6, 11.2 and 11.5).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/deepseek_v41/inventory.h"
#include "weights/checkpoint.h"

namespace thalweg::models::deepseek_v41 {

struct Footprint {
  std::map<std::pair<Part, Split>, std::int64_t> bytes;

  std::int64_t total() const;
  std::map<Part, std::int64_t> parts() const;
};

Footprint footprint(const std::vector<Parameter>& parameters);

/// Of the tensors that are in the file, whatever they are stored as. What the inventory does not know is vision.
Footprint footprint(const Config& config, const weights::Checkpoint& checkpoint);

/// Ranks that share a model. Experts and Engram tables are always divided; DEP ranks hold all else whole and compute
/// attention for sequences of their own, TP ranks divide it.
struct Layout {
  const char* name;
  std::int32_t num_ranks;
  bool divides_dense;
};

inline constexpr Layout kLayouts[] = {{"DEP2", 2, false},   {"DEP4", 4, false},   {"DEP8", 8, false},
                                      {"DEP16", 16, false}, {"DEP32", 32, false}, {"TP4", 4, true},
                                      {"TP8", 8, true}};

/// Why the model cannot be divided so; empty if it can.
std::string obstacle(const Config& config, const Layout& layout);

/// Weights of the rank that holds most.
std::int64_t bytes_per_rank(const Footprint& footprint, const Layout& layout);

}  // namespace thalweg::models::deepseek_v41
