#include "apps/model_catalog.h"

#include <algorithm>
#include <sstream>

#include "apps/model_catalog_text.h"

namespace thalweg::apps {
namespace {

/// Lines "model <name> <file> <sha256> <package>==<version>:<member> ..."; others are not ours.
std::vector<CatalogEntry> parse(std::string_view text) {
  std::vector<CatalogEntry> entries;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    CatalogEntry entry;
    if (!(words >> kind >> entry.name >> entry.file >> entry.sha256) || kind != "model") continue;
    for (std::string part; words >> part;) {
      const std::size_t colon = part.find(':');
      entry.parts.push_back({part.substr(0, colon), part.substr(colon + 1)});
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

std::span<const CatalogEntry> catalog() {
  static const std::vector<CatalogEntry> entries = parse(kModelCatalogText);
  return entries;
}

const CatalogEntry* find_in_catalog(std::string_view name) {
  const auto found = std::ranges::find(catalog(), name, &CatalogEntry::name);
  return found == catalog().end() ? nullptr : &*found;
}

}  // namespace thalweg::apps
