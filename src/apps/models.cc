#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/model_catalog.h"
#include "models/registry.h"

namespace thalweg::apps {
namespace {

struct Listed {
  std::string name;
  std::string path;  // empty: not fetched
};

/// The catalogue first, then whatever else lies in the cache folder.
std::vector<Listed> list_models() {
  const std::filesystem::path folder = cache_folder() + "/models";
  std::vector<Listed> models;
  std::vector<std::string> known;
  for (const CatalogEntry& entry : catalog()) {
    const std::filesystem::path path = folder / entry.file;
    models.push_back({entry.name, std::filesystem::exists(path) ? path.string() : ""});
    known.push_back(entry.file);
  }
  std::error_code error;
  std::vector<Listed> others;
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(".") || std::ranges::find(known, name) != known.end()) continue;
    others.push_back({name, file.path().string()});
  }
  std::ranges::sort(others, {}, &Listed::name);
  models.insert(models.end(), others.begin(), others.end());
  return models;
}

}  // namespace

int run(const ModelsCommand& command) {
  const auto models = list_models();
  if (command.json) {
    boost::json::array list;
    for (const Listed& model : models) {
      list.push_back(boost::json::object{{"name", model.name}, {"path", model.path}, {"fetched", !model.path.empty()}});
    }
    fmt::print("{}\n", boost::json::serialize(list));
    return 0;
  }
  for (const Listed& model : models) {
    fmt::print("{:<28} {}\n", model.name, model.path.empty() ? "not fetched; thalweg pull " + model.name : model.path);
  }
  fmt::print("architectures:");
  for (const std::string& name : models::supported_architectures()) fmt::print(" {}", name);
  fmt::print("\n");
  return 0;
}

}  // namespace thalweg::apps
