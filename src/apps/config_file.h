// A configuration file as flat text: TOML or YAML by its ending.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "thalweg/error.h"

namespace thalweg::apps {

/// Option name (dashes, no leading ones) to its values; lists keep their order.
using ConfigValues = std::map<std::string, std::vector<std::string>>;

/// `common` holds the top-level keys, `commands` the tables named after a command.
struct ConfigFile {
  ConfigValues common;
  std::map<std::string, ConfigValues> commands;
};

/// Errors name the file and the line.
Result<ConfigFile> read_config_file(const std::string& path);

}  // namespace thalweg::apps
