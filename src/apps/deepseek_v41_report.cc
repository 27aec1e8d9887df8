#include "apps/deepseek_v41_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "models/deepseek_v41/cache_layout.h"
#include "models/load_options.h"

namespace thalweg::apps {
namespace {

using namespace models::deepseek_v41;

std::string describe(const Config& config, const LayerRole& role, std::int32_t layer) {
  std::vector<std::string> facts;
  if (role.ratio > 0 && role.kv_owner == layer) {
    facts.push_back(fmt::format("an entry per {}", role.ratio == 1 ? "token" : fmt::format("{} tokens", role.ratio)));
  } else if (role.ratio > 0) {
    facts.push_back(fmt::format("entries of {}", role.kv_owner));
  }
  if (role.ratio > 0 && role.index_owner != layer) facts.push_back(fmt::format("chosen by {}", role.index_owner));
  if (layer == config.index.candidate_source) facts.emplace_back("names candidates");
  if (role.engram >= 0) facts.emplace_back("Engram table");
  if (facts.empty()) return role.name(layer);
  return fmt::format("{:<9}{}", role.name(layer), fmt::join(facts, ", "));
}

/// Neighbours that do the same share a line.
void print_layers(const Config& config) {
  const std::vector<LayerRole> roles = layer_roles(config);
  fmt::print("layers\n");
  for (std::int32_t first = 0, end = 0; first < config.num_layers; first = end) {
    const std::string text = describe(config, roles[static_cast<std::size_t>(first)], first);
    end = first + 1;
    while (end < config.num_layers && describe(config, roles[static_cast<std::size_t>(end)], end) == text) ++end;
    fmt::print("  {:<7} {}\n", end - first > 1 ? fmt::format("{}-{}", first, end - 1) : fmt::to_string(first), text);
  }
}

void print_bytes(std::string_view name, std::int64_t num_bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB"};
  auto amount = static_cast<double>(num_bytes);
  std::size_t unit = 0;
  for (; amount >= 1000.0 && unit + 1 < std::size(kUnits); ++unit) amount /= 1000.0;
  fmt::print("  {:<24}{:>16} bytes {:>9.{}f} {}\n", name, num_bytes, amount, unit == 0 ? 0 : 2, kUnits[unit]);
}

void print_weights(const Footprint& footprint) {
  fmt::print("weights\n");
  for (const auto& [part, num_bytes] : footprint.parts()) print_bytes(part_name(part), num_bytes);
  print_bytes("all", footprint.total());
}

void print_cache(const Config& config) {
  const models::LoadOptions options;
  const CacheLayout layout(config, options.block_size, std::max(options.max_draft_tokens, config.dspark.block_size),
                           config.dspark.num_stages > 0);
  const kv_cache::CacheSpec spec = layout.spec();
  fmt::print("cache\n");
  print_bytes("per token", spec.bytes_per_block / spec.block_size);
  print_bytes("per sequence", spec.state_bytes_per_slot);
}

void print_ranks(const Config& config, const Footprint& footprint) {
  fmt::print("weights per rank\n");
  for (const Layout& layout : kLayouts) {
    if (const std::string reason = obstacle(config, layout); !reason.empty()) {
      fmt::print("  {:<24} {}\n", layout.name, reason);
    } else {
      print_bytes(layout.name, bytes_per_rank(footprint, layout));
    }
  }
}

}  // namespace

void print_deepseek_v41(const Config& config, const Footprint& footprint) {
  print_layers(config);
  print_weights(footprint);
  print_cache(config);
  print_ranks(config, footprint);
}

}  // namespace thalweg::apps
