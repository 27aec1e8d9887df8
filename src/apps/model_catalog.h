// Models that can be fetched by name. The list is tools/dependencies.txt, embedded when the program is built.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thalweg::apps {

/// A model that a Python package carries, perhaps in parts that are joined in order.
struct CatalogEntry {
  struct Part {
    std::string requirement;  // package==version
    std::string member;       // file inside the package
  };

  std::string name;
  std::string file;
  std::string sha256;
  std::vector<Part> parts;
};

std::span<const CatalogEntry> catalog();
const CatalogEntry* find_in_catalog(std::string_view name);

}  // namespace thalweg::apps
